"""Register the best checkpoint in MLflow: a model that takes raw texts and image files, with its gallery.

python pipelines/register.py --config pipelines/config/data/flickr8k.yaml
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.evaluation.evaluator import GALLERY
from pipelines.registry.card import FILE, Evidence, description, model_card
from pipelines.runtime.stage import (
    StageDir,
    StageError,
    StagePlan,
    StageReport,
    fingerprint,
    manifest_in,
    pull_finished,
)
from pipelines.stages import evaluate, extract, index, train
from preprocessing.storage.atomic import write_bytes_atomic

if TYPE_CHECKING:
    from pipelines.config import PipelineConfig
    from pipelines.tracking import Tracker

NAME = "register"
# Raised when the same checkpoint would be registered as something else.
VERSION = 3


def plan(config: PipelineConfig) -> StagePlan:
    """Say whether the model that the configuration leads to is registered."""
    stage = _stage(config)
    return StagePlan(
        name=NAME,
        fingerprint=stage.fingerprint,
        directory=stage.path,
        total=1,
        done=int(_is_registered(config, stage)),
        unit="models",
        size=f"registered model {config.registered_model!r}",
        outputs={"bundle": stage.path},
    )


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Put the best checkpoint, its extractor and its gallery together, log them as a pyfunc and register it.

    Raises:
        StageError: there is no trained and evaluated model yet, or MLflow does not take it.
    """
    from mlflow.exceptions import MlflowException

    from pipelines.registry.models import describe_version, register_bundle

    stage = _stage(config)
    if _is_registered(config, stage):
        return StageReport(NAME, stage.path, stage.read_manifest()["summary"], up_to_date=True)
    evaluated = evaluate.plan(config)
    metrics = pull_finished(evaluated, config, f"{NAME}: {evaluate.MISSING}").read_manifest()["metrics"]
    indexed = index.plan(config)
    pull_finished(indexed, config, f"{NAME}: the gallery has not been indexed; run the stage index first")
    split = config.dataset.eval_split
    _write_bundle(config, evaluated.outputs[GALLERY], indexed.outputs[index.NAME], stage.create())
    tags = _tags(config, metrics["rsum"])
    named = {f"{split}/{name}": value for name, value in metrics.items()}
    card = stage.path / FILE
    write_bytes_atomic(card, _card(config, metrics, tags).encode())
    tracker.log_artifact(card)
    try:
        with tracker.active():
            registered = register_bundle(stage.path, config.registered_model, stage.fingerprint, tags, named)
        text = description(card.read_text(encoding="utf-8"))
        describe_version(registered.name, registered.version, text, config.tracking_uri)
    except (MlflowException, OSError) as error:
        raise StageError(f"{NAME}: MLflow at {config.tracking_uri} has not taken the model: {error}") from error
    summary = f"{registered.name} version {registered.version}, {split} RSUM {metrics['rsum']:.1f}"
    tracker.set_tags({"vse.fingerprint": stage.fingerprint, "vse.model_uri": registered.uri})
    stage.complete({"summary": summary, "model_uri": registered.uri, "model_id": registered.model_id})
    return StageReport(NAME, stage.path, summary)


def _tags(config: PipelineConfig, rsum: float) -> dict[str, str]:
    """Where a version comes from."""
    from pipelines.tracking import code_version

    return {
        "vse.preset": config.preset,
        "vse.split": config.dataset.eval_split,
        "vse.rsum": f"{rsum:.2f}",
        "vse.folds": str(config.evaluation.folds),
        "vse.seed": str(config.seed),
        "vse.data_fingerprint": extract.plan(config).fingerprint,
        "vse.train_fingerprint": train.plan(config).fingerprint,
        **code_version(),
    }


def _card(config: PipelineConfig, metrics: Mapping[str, float], tags: Mapping[str, str]) -> str:
    splits = {name: manifest_in(folder) for name, folder in extract.plan(config).outputs.items()}
    return model_card(config, Evidence(splits, manifest_in(train.plan(config).directory), metrics, tags))


def _stage(config: PipelineConfig) -> StageDir:
    content = {
        "version": VERSION,
        "train": train.plan(config).fingerprint,
        "index": index.plan(config).fingerprint,
        "name": config.registered_model,
        "tracking": config.tracking_uri,
    }
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _is_registered(config: PipelineConfig, stage: StageDir) -> bool:
    """Whether the stage is complete and the database it registered in is still there."""
    database = config.tracking_uri.removeprefix("sqlite:///")
    is_gone = database != config.tracking_uri and not Path(database).is_file()
    return stage.is_complete() and not is_gone


def _write_bundle(config: PipelineConfig, gallery: Path, gallery_index: Path, directory: Path) -> None:
    """Write the parts of a bundle; what a killed run left of them is overwritten."""
    from pipelines.inference.embedder import write_extractor

    shutil.copytree(train.best_model(config), directory / "model", dirs_exist_ok=True)
    shutil.copytree(gallery, directory / "gallery", dirs_exist_ok=True)
    shutil.copytree(gallery_index, directory / "index", dirs_exist_ok=True)
    write_extractor(directory / "extractor", config.features.read.extractor, config.features.read.options())
