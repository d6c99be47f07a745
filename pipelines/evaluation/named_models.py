"""The evaluation of named models, alone, as an ensemble or against each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from pipelines.config import PipelineConfig
from pipelines.evaluation import GALLERY, NAME, VERSION, Rsum
from pipelines.evaluation.comparison import compare
from pipelines.evaluation.ensemble import evaluate_ensemble
from pipelines.evaluation.evaluated_model import EvaluatedModel, done_once, in_one_order, model_digests
from pipelines.evaluation.hub_correction import deciding_correction
from pipelines.inference.feature_check import require_features
from pipelines.kinds import saved_kind
from pipelines.registry.models import CORRECTION, find_model
from pipelines.registry.pretrained import save_pretrained, zero_shot_config
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import Plans, StageDir, StageError, StageReport, fingerprint, manifest_in, used_folders
from pipelines.schema.weights import PRETRAINED
from pipelines.stages.evaluate.plan import evaluation_content
from pipelines.stages.evaluate.run import evaluate_directory
from pipelines.stages.runner import run_stages
from pipelines.tracking import Tracker
from preprocessing.datasets import build_dataset
from preprocessing.storage.mirror import CONTENTS
from vse_core.digests import DIGESTS
from vse_core.evaluation.recall import chance_rsum


@dataclass(frozen=True)
class NamedModel:
    """A model with the configuration of its data and features."""

    reference: str
    config: PipelineConfig
    model: Path

    @classmethod
    def find(cls, reference: str, config: PipelineConfig) -> Self:
        """Find a model directory, a registered model, or a pretrained dual encoder (hf:NAME or hf:FOLDER).

        Raises RegistryError if there is no such model; ConfigError if there is no such folder; StageError if the
        pretrained weights cannot be used; DigestError if a file was changed, or another version has written it.
        """
        if reference.startswith(PRETRAINED):
            config = zero_shot_config(config, reference.removeprefix(PRETRAINED))
            return cls(reference, config, save_pretrained(config) / "model")
        name, model = find_model(reference, config.tracking_uri)
        return cls(name, config, model)

    def at_hand(self) -> Path:
        """Return the directory of the model on this machine, which need not be the one that has found it."""
        if self.model.is_relative_to(self.config.work_dir):
            self.config.mirror.pull(self.model, lambda name: name != CONTENTS)
            if self.config.mirror.has((stored := self.model.parent / CORRECTION) / DIGESTS):
                self.config.mirror.pull(stored)
        return self.model if self.model.is_dir() else self.find(self.reference, self.config).model


def evaluate_model(named: NamedModel) -> EvaluatedModel:
    """Evaluate a model on its configuration's split, extracted if need be; StageError if it needs other features."""
    config, model = named.config, named.model
    require_features(config.features.member, model)
    plans = run_stages(config, ["extract", "parse"] if config.reads_graphs else ["extract"])
    content = {
        "version": VERSION,
        "model": model_digests(model),
        "features": plans["extract"].fingerprint,
        # Shards may have several features.
        "reads": config.features.member,
        **evaluation_content(config, plans),
        **deciding_correction(config, model),
    }
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    done_once(stage, config, _evaluate, named, plans, stage, uses=used_folders(plans))
    return EvaluatedModel(named.reference, model, saved_kind(model), plans["extract"].fingerprint, stage.path)


def _evaluate(named: NamedModel, plans: Plans, stage: StageDir, tracker: Tracker) -> None:
    evaluate_directory(named.config, plans, named.at_hand(), stage, tracker)


def evaluate_models(models: Sequence[NamedModel]) -> StageReport:
    """Evaluate each model by itself, and all together if there are several.

    Raises StageError if a model does not fit its features, or the images, captions or settings differ.
    """
    require_same_settings(models, "folds", "protocols", "cxc", "added")
    if len(models) > 1:
        require_same_items(models)
        return evaluate_ensemble([evaluate_model(named) for named in models], models[0].config)
    directory = evaluate_model(models[0]).directory
    return StageReport(NAME, directory, manifest_in(directory)["summary"])


def compare_models(first: NamedModel, second: NamedModel) -> StageReport:
    """Evaluate two models if they are not evaluated yet, and compare them; raises as `evaluate_models`."""
    require_same_settings([first, second], "folds")
    return compare((evaluate_model(first), evaluate_model(second)), first.config)


def measure_model(named: NamedModel) -> Rsum:
    """Evaluate a model as `evaluate_model`, and return its RSUM next to that of a random ranking."""
    evaluated, folds = evaluate_model(named), named.config.evaluation.folds
    metrics = evaluated.metrics
    counts = [len(record.captions) for record in Gallery.load(evaluated.directory / GALLERY).records]
    return Rsum(metrics["rsum"], metrics["rsum_low"], metrics["rsum_high"], chance_rsum(counts, folds))


def require_same_settings(models: Sequence[NamedModel], *keys: str) -> None:
    """Raise StageError with the first key of `evaluation` that differs between models."""
    for key in keys:
        first, *others = (getattr(named.config.evaluation, key) for named in models)
        for other in others:
            if other != first:
                raise StageError(
                    f"{NAME}: evaluation.{key} differs between the configurations: {first} and {other}; make it one"
                )


def require_same_items(models: Sequence[NamedModel]) -> None:
    """Raise StageError if the splits of models have different images or captions, before any of them is evaluated."""
    galleries = []
    for named in models:
        settings = named.config.dataset
        records = tuple(build_dataset(settings.format, **settings.options()).records(settings.eval_split))
        captions = sum(len(record.captions) for record in records)
        # Nothing is embedded yet: vectors of width 0.
        galleries.append(Gallery(torch.empty(len(records), 1, 0), torch.empty(captions, 0), records))
    in_one_order([named.reference for named in models], galleries)
