"""Pretrained dual encoders by name, `hf:NAME` or `hf:FOLDER`: models that nobody has trained or registered here.

One is saved in the work directory as a bundle without a gallery, and from then on is `hf:NAME@DIGITS`, by the
fingerprint of its weights and settings, whatever becomes of the folder.
"""

import re
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig, from_layers, load_config
from pipelines.config.layers import Layer, preset_layers
from pipelines.inference.feature_check import write_feature_key
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import MANIFEST, StageDir, StageError, fingerprint
from pipelines.schema.encoders import DUAL_ENCODER
from pipelines.schema.fields import default_mirror
from pipelines.schema.weights import PRETRAINED
from pipelines.stages.preflight import check_model
from pipelines.stages.train.plan import model_content
from vse_core.digests import DIGESTS, write_digests
from vse_core.hub import require_on_hub

NAME = "pretrained"
# Raised when the same weights would be saved as another model.
VERSION = 2
_PARTS = ("model", "extractor")
_OF_THE_MODEL = ("preset", "features", "model", "loss", "training")
# Settings of the processes, which are those of the configuration.
_OF_MACHINES = {"actors", "cpus_per_actor", "gpus_per_actor", "image_timeout", "cpus_per_worker", "gpus_per_worker"}
_PINNED = re.compile(rf"{PRETRAINED}(?P<weights>.+)@(?P<digits>[0-9a-f]{{16}})")


def zero_shot_config(config: PipelineConfig, weights: str) -> PipelineConfig:
    """Return the configuration of a pretrained dual encoder over image files; ConfigError if the data has no images."""
    kept = {key: value for key, value in config if key not in _OF_THE_MODEL}
    features = config.features.model_dump(include=_OF_MACHINES) | {"extractor": "images"}
    if config.features.extractor == "images":
        features = config.features.model_dump(mode="json")
    own: dict[str, Any] = {"preset": DUAL_ENCODER, "model": {"weights": weights}, "features": features}
    # Nothing is trained, and an audit counts no captions that are left out.
    own["training"] = config.training.model_dump(include={*_OF_MACHINES, "leave_out"})
    return from_layers([*preset_layers(DUAL_ENCODER), Layer(f"{PRETRAINED}{weights}", {**kept, **own})])


def pin_pretrained(reference: str) -> str:
    """Save the model of `hf:NAME` or `hf:FOLDER` once (see `save_pretrained`), and return `hf:NAME@DIGITS`."""
    if _PINNED.fullmatch(reference):
        return reference
    config = zero_shot_config(load_config(None), reference.removeprefix(PRETRAINED))
    return f"{PRETRAINED}{_weights(config)}@{save_pretrained(config).name}"


def find_pretrained(pinned: str) -> Path:
    """Return the bundle of `hf:NAME@DIGITS`, from the storage if that alone has it; else it is saved again.

    Raises StageError if the weights have become other ones, and as `save_pretrained`.
    """
    match = _PINNED.fullmatch(pinned)
    assert match is not None, pinned
    mirror = default_mirror()
    bundle = mirror.root / NAME / match["digits"]
    if not (bundle / MANIFEST).is_file() and mirror.has(bundle / MANIFEST):
        mirror.pull(bundle, lambda name: name != MANIFEST)
        mirror.pull_file(bundle / MANIFEST)
    if not (bundle / MANIFEST).is_file() and (found := pin_pretrained(f"{PRETRAINED}{match['weights']}")) != pinned:
        raise StageError(f"{pinned} is not in {bundle.parent} any more, and is now {found}: index the images again")
    return bundle


def save_pretrained(config: PipelineConfig) -> Path:
    """Save the pretrained model of a configuration as a bundle of `model` and `extractor`, once, and return it.

    Raises ConfigError if the weights are a folder that is missing or incomplete, and StageError if the
    model does not exist, its weights or tokenizer cannot be loaded, or it is not a dual encoder.
    """
    content = {"version": VERSION, "model": model_content(config), "features": config.features.member}
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    with exclusive(config.mirror, stage.path):
        if not stage.is_complete():
            require_pretrained(config)
            try:
                _save(config, stage.create())
            except ValueError as error:
                raise StageError(f"{PRETRAINED}{_weights(config)}: {error}") from error
            stage.complete({"weights": _weights(config)}, [*_PARTS, DIGESTS])
    stage.pull()
    return stage.path


def require_pretrained(config: PipelineConfig) -> None:
    """Refuse weights that are not there, without torch; ConfigError for a folder, StageError for a name on the hub."""
    check_model(config)
    try:
        require_on_hub(_weights(config))
    except ValueError as error:
        raise StageError(f"{PRETRAINED}{_weights(config)}: {error}") from error


def _save(config: PipelineConfig, bundle: Path) -> None:
    from pipelines.inference.embedder import write_extractor  # torch: the weights are there
    from pipelines.kinds.words import pretrained_tokenizer
    from vse_core.models import build_model

    tokenizer = pretrained_tokenizer(_weights(config), for_tower=True)
    model = build_model(None, len(tokenizer), None, config.model.image.options(), config.model.text.options())
    folder, extractor = (bundle / part for part in _PARTS)
    folder.mkdir(exist_ok=True)
    model.save(folder)
    tokenizer.save(folder / tokenizer.FILE)
    write_feature_key(folder, config.features.member)
    write_extractor(extractor, config.features.extractor, {**config.features.options(), **config.features.limits})
    write_digests(bundle, *_PARTS)


def _weights(config: PipelineConfig) -> str:
    weights: str = config.model.image.options()["weights"]
    return weights
