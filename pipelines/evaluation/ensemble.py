"""Several models of the same images, evaluated together by the mean of their similarities.

This is how VSE-infinity and VSE+2AD combine models of region, grid and patch features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pipelines.evaluation.evaluator import GALLERY, PICTURES, collect, rank
from pipelines.runtime.cli import console
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageDir, StageError, StageReport, fingerprint, manifest_in

if TYPE_CHECKING:
    from pipelines.config.training import EvaluationConfig
    from pipelines.kinds.kind import ModelKind
    from pipelines.retrieval.gallery import Gallery
    from pipelines.schema.experiment import Experiment
    from pipelines.tracking import Tracker
    from preprocessing.storage import Mirror

NAME = "ensemble"
# Raised when the same members would give other metrics.
VERSION = 2

_COLUMNS = {"RSUM": "rsum"} | {f"{way} R@{k}": f"{way}_r{k:02}" for way in ("i2t", "t2i") for k in (1, 5, 10)}


@dataclass(frozen=True)
class EvaluatedModel:
    """A model (its directory, its kind, the user's name for it) that was evaluated on a split, into a directory."""

    reference: str
    model: Path
    kind: ModelKind
    data_fingerprint: str
    directory: Path

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the evaluation."""
        metrics: dict[str, float] = manifest_in(self.directory)["metrics"]
        return metrics


def evaluate_ensemble(
    members: Sequence[EvaluatedModel],
    settings: EvaluationConfig,
    split: str,
    mirror: Mirror,
    experiment: Experiment,
    seed: int,
) -> StageReport:
    """Evaluate the mean of several models' similarities, and print a row for each model and one for the ensemble.

    Members are matched by the ids of the images; `split` is the first one's. The run in MLflow has the metrics of the
    ensemble under the split's name and those of the members under `member_1`, `member_2` and so on. Raises StageError
    where images or captions differ.
    """
    from pipelines.tracking import PipelineRuns

    content = {"version": VERSION, "members": [member.directory.name for member in members]}
    stage = StageDir(mirror.root, NAME, fingerprint(content), mirror)
    if not stage.is_complete():
        with (
            exclusive(mirror, stage.path),
            PipelineRuns(experiment, stage.fingerprint) as runs,
            runs.parent as tracker,
        ):
            tracker.set_tags({"vse.fingerprint": stage.fingerprint, "vse.seed": seed})
            _evaluate(members, settings, split, stage, tracker)
    manifest = stage.read_manifest()
    _print_rows([*(member.reference for member in members), NAME], [*manifest["members"], manifest["metrics"]])
    return StageReport(NAME, stage.path, manifest["summary"])


def _evaluate(
    members: Sequence[EvaluatedModel], settings: EvaluationConfig, split: str, stage: StageDir, tracker: Tracker
) -> None:
    galleries = aligned_galleries(members)
    tracker.set_tags(
        {
            "vse.data_fingerprint": " ".join(member.data_fingerprint for member in members),
            "vse.models": " ".join(str(member.model) for member in members),
            "vse.split": split,
            "vse.protocol": f"image-text recall of an ensemble of {len(members)}, {settings.folds} fold(s)",
        }
    )
    directory = stage.create()
    rows = [member.metrics for member in members]
    for number, row in enumerate(rows, start=1):
        tracker.log_metrics({f"member_{number}/{name}": value for name, value in row.items()})
    found = rank(settings, split, galleries, directory)
    metrics, summary, files = collect(found, split, tracker, directory / PICTURES)
    content: dict[str, Any] = {"metrics": metrics, "members": rows, "split": split, "folds": settings.folds}
    content["summary"] = f"{len(members)} models together: {summary}"
    stage.complete(content, [PICTURES, *files])


def aligned_galleries(members: Sequence[EvaluatedModel]) -> list[Gallery]:
    """Return the galleries of evaluated models in the first one's order; StageError if images or captions differ."""
    from pipelines.retrieval.gallery import Gallery

    galleries = [Gallery.load(member.directory / GALLERY, member.kind) for member in members]
    return in_one_order([member.reference for member in members], galleries)


def in_one_order(names: Sequence[str], galleries: Sequence[Gallery]) -> list[Gallery]:
    """Return the galleries of named models in the first one's order; StageError if images or captions differ."""
    from pipelines.retrieval.gallery import GalleryError

    ordered = [galleries[0]]
    for name, gallery in zip(names[1:], galleries[1:], strict=True):
        try:
            ordered.append(gallery.in_order_of(galleries[0]))
        except GalleryError as error:
            raise StageError(
                f"{names[0]} and {name} cannot be compared: {error}; give both the same split of the same images"
            ) from error
    return ordered


def _print_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("model", *_COLUMNS)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(f"{row[key]:.1f}" for key in _COLUMNS.values()))
    console().print(table)
