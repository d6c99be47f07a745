"""Stage 5, index: the gallery of the evaluated model, so that searches need not compare a query with everything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluator import GALLERY
from pipelines.runtime.stage import Plans, StageDir, StagePlan, StageReport, fingerprint
from pipelines.tracking import Tracker

if TYPE_CHECKING:
    from pipelines.retrieval.faiss_index import Facts

NAME = "index"
# Raised when the same gallery would give another index.
VERSION = 1


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find whether the gallery is indexed."""
    stage = _stage(config, upstream)
    return StagePlan.of_one(
        stage, "indices", f"gallery of split {config.dataset.eval_split}", {NAME: stage.path / NAME}
    )


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Build the indices of images and captions, and measure the recall of an approximate one.

    Raises StageError where there is no gallery yet.
    """
    stage = _stage(config, upstream)
    gallery, model = upstream["evaluate"].output(GALLERY), upstream["train"].output("best")
    config.mirror.pull(upstream["evaluate"].directory)
    config.mirror.pull_folder(model)
    facts = _build(gallery, model, config.index.kind, stage.create() / NAME)
    tracker.set_tags({"vse.fingerprint": stage.fingerprint})
    tracker.log_metrics({f"index/{items}_recall": each.recall for items, each in facts.items()})
    tracker.log_artifact(stage.path / NAME / "index.json")
    summary = "; ".join(_described(items, each) for items, each in facts.items())
    stage.complete({"summary": summary})
    return StageReport(NAME, stage.path, summary)


def _stage(config: PipelineConfig, upstream: Plans) -> StageDir:
    content = {"version": VERSION, "evaluate": upstream["evaluate"].fingerprint, **config.index.model_dump()}
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _build(
    gallery: Path, model: Path, kind: Literal["auto", "exact", "approximate"], directory: Path
) -> dict[str, Facts]:
    from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
    from pipelines.retrieval.gallery import Gallery

    embedded = Gallery.load(gallery)
    index = GalleryIndex.build(embedded.images_BKD, embedded.texts_CD, kind)
    index.save(directory, index_origin(model, gallery))
    return index.facts()


def _described(items: str, facts: Facts) -> str:
    """Return the number of items, and the recall of an approximate index."""
    if facts.kind == "exact":
        return f"{facts.items:,} {items}, exact"
    return f"{facts.items:,} {items}, approximate with recall {facts.recall:.3f} of the first ten"
