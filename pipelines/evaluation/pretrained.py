"""Pretrained dual encoders by name, `hf:NAME` or `hf:FOLDER`: models that nobody has trained or registered here."""

from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig, from_layers
from pipelines.config.layers import Layer, preset_layers
from pipelines.inference.feature_check import write_feature_key
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageDir, StageError, empty_folder, fingerprint, move_up
from pipelines.schema.encoders import DUAL_ENCODER
from pipelines.stages.preflight import check_model
from pipelines.stages.train.plan import model_content
from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError

PREFIX = "hf:"
NAME = "pretrained"
# Raised when the same weights would be saved as another model.
VERSION = 1
_OF_THE_MODEL = ("preset", "features", "model", "loss", "training")


def zero_shot_config(config: PipelineConfig, weights: str) -> PipelineConfig:
    """Return a configuration with a pretrained dual encoder as its model, and image files as its features.

    Raises ConfigError if the data set has no images.
    """
    kept = {key: value for key, value in config if key not in _OF_THE_MODEL}
    features = config.features if config.features.extractor == "images" else {"extractor": "images"}
    own: dict[str, Any] = {"preset": DUAL_ENCODER, "model": {"weights": weights}, "features": features}
    own["training"] = {"batch_size": 2}  # nothing is trained: any number of captions will do
    return from_layers([*preset_layers(DUAL_ENCODER), Layer(f"{PREFIX}{weights}", {**kept, **own})])


def save_pretrained_model(config: PipelineConfig) -> Path:
    """Save the pretrained model of a configuration as a model directory, once, and return it.

    Raises ConfigError if the weights are a folder that is missing or incomplete, and StageError if the weights or
    their tokenizer cannot be loaded, or are not a dual encoder.
    """
    from vse_core.models import build_model

    content = {"version": VERSION, "model": model_content(config), "features": config.features.member}
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    with exclusive(config.mirror, stage.path):
        if not stage.is_complete():
            check_model(config)
            image, text = config.model.image.options(), config.model.text.options()
            try:
                tokenizer = SubwordTokenizer.from_pretrained(image["weights"], for_tower=True)
                model = build_model(None, len(tokenizer), None, image, text)
            except (TokenizerError, ValueError) as error:
                raise StageError(f"{PREFIX}{image['weights']}: {error}") from error
            with empty_folder(stage.create()) as made:
                model.save(made)
                tokenizer.save(made / tokenizer.FILE)
                write_feature_key(made, config.features.member)
                stage.complete({"weights": image["weights"]}, move_up(made))
    stage.pull()
    return stage.path
