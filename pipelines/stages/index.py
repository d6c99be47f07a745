"""Index the gallery of the evaluated model, so that searches find what is nearest without comparing everything.

python pipelines/index.py --config pipelines/config/data/flickr8k.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.evaluation.evaluator import GALLERY
from pipelines.runtime.stage import StageDir, StagePlan, StageReport, fingerprint, pull_finished, whole_plan
from pipelines.stages import evaluate, train

if TYPE_CHECKING:
    from pipelines.config import PipelineConfig
    from pipelines.retrieval.faiss_index import Facts
    from pipelines.tracking import Tracker

NAME = "index"
# Raised when the same gallery would give another index.
VERSION = 1


def plan(config: PipelineConfig) -> StagePlan:
    """Say whether the gallery of the model that the configuration leads to is indexed."""
    stage = _stage(config)
    return whole_plan(stage, "indices", f"gallery of split {config.dataset.eval_split}", {NAME: stage.path / NAME})


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Build the indices of images and captions, and measure what an approximate one misses.

    Raises:
        StageError: there is no gallery yet.
    """
    stage = _stage(config)
    if not stage.is_complete():
        evaluated = evaluate.plan(config)
        pull_finished(evaluated, config, f"{NAME}: {evaluate.MISSING}")
        facts = _build(config, evaluated.outputs[GALLERY], stage.create() / NAME)
        tracker.set_tags({"vse.fingerprint": stage.fingerprint})
        tracker.log_metrics({f"index/{items}_recall": each.recall for items, each in facts.items()})
        tracker.log_artifact(stage.path / NAME / "index.json")
        stage.complete({"summary": "; ".join(_described(items, each) for items, each in facts.items())})
    return StageReport(NAME, stage.path, stage.read_manifest()["summary"])


def _stage(config: PipelineConfig) -> StageDir:
    content = {"version": VERSION, "evaluate": evaluate.plan(config).fingerprint, **config.index.model_dump()}
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _build(config: PipelineConfig, gallery: Path, directory: Path) -> dict[str, Facts]:
    from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
    from pipelines.retrieval.gallery import Gallery

    embedded = Gallery.load(gallery)
    index = GalleryIndex.build(embedded.images_BKD, embedded.texts_CD, config.index.kind)
    index.save(directory, index_origin(train.best_model(config), gallery))
    return index.facts()


def _described(items: str, facts: Facts) -> str:
    """Say how many there are, and for an approximate index what it finds of them."""
    if facts.kind == "exact":
        return f"{facts.items:,} {items}, exact"
    return f"{facts.items:,} {items}, approximate with recall {facts.recall:.3f} of the first ten"
