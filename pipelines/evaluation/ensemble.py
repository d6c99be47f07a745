"""Several models of the same images, evaluated one by one and together: the mean of their similarities ranks.

This is how VSE-infinity and VSE+2AD combine models of region, grid and patch features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluator import GALLERY, PICTURES, collect, evaluate_model, metrics_of, rank
from pipelines.runtime.stage import StageDir, StageError, StageReport, fingerprint
from pipelines.stages import extract
from pipelines.stages.runner import console

if TYPE_CHECKING:
    from pipelines.retrieval.gallery import Gallery

NAME = "ensemble"
# Raised when the same members would give other metrics.
VERSION = 2

_COLUMNS = {"RSUM": "rsum"} | {f"{way} R@{k}": f"{way}_r{k:02}" for way in ("i2t", "t2i") for k in (1, 5, 10)}
# Width of the table in a log, where there is no terminal to ask.
_LOG_COLUMNS = 140


@dataclass(frozen=True)
class Member:
    """A model with the configuration of the data and features that it reads.

    Attributes:
        reference: what the user calls the model.
        config: names the data set, the split and the features.
        model: directory of the model.
    """

    reference: str
    config: PipelineConfig
    model: Path


def evaluate_members(members: Sequence[Member]) -> StageReport:
    """Evaluate each member by itself, and all together where there are several; prints a row for each.

    Members are matched by the ids of the images. The ensemble's own run in MLflow, in the first member's experiment,
    holds its metrics under the split's name and those of the members under `member_1`, `member_2` and so on.

    Raises:
        StageError: a model does not fit its features, or the members' images, captions or protocols differ.
    """
    for key in ("folds", "protocols", "cxc"):
        values = list(dict.fromkeys(getattr(member.config.evaluation, key) for member in members))
        if len(values) > 1:
            raise StageError(
                f"{NAME}: evaluation.{key} differs between the configurations: {values[0]} and {values[1]}; make it one"
            )
    reports = [evaluate_model(member.config, member.model) for member in members]
    for member, report in zip(members, reports, strict=True):
        member.config.mirror.pull(report.directory)
    if len(members) == 1:
        return reports[0]
    first = members[0].config
    content = {"version": VERSION, "members": [str(report.directory.name) for report in reports]}
    stage = StageDir(first.work_dir, NAME, fingerprint(content), first.mirror)
    if not stage.is_complete():
        _evaluate(members, reports, stage)
    manifest = stage.read_manifest()
    _print_rows([*(member.reference for member in members), NAME], [*manifest["members"], manifest["metrics"]])
    return StageReport(NAME, stage.path, manifest["summary"])


def _evaluate(members: Sequence[Member], reports: Sequence[StageReport], stage: StageDir) -> None:
    from pipelines.tracking import PipelineRuns

    config = members[0].config
    split, folds = config.dataset.eval_split, config.evaluation.folds
    galleries = aligned_galleries(members, reports)
    with PipelineRuns(config, stage.fingerprint) as runs, runs.parent as tracker:
        tracker.set_tags(
            {
                "vse.fingerprint": stage.fingerprint,
                "vse.data_fingerprint": " ".join(extract.plan(member.config).fingerprint for member in members),
                "vse.models": " ".join(str(member.model) for member in members),
                "vse.split": split,
                "vse.protocol": f"image-text recall of an ensemble of {len(members)}, {folds} fold(s)",
                "vse.seed": config.seed,
            }
        )
        directory = stage.create()
        rows = [metrics_of(report) for report in reports]
        for number, row in enumerate(rows, start=1):
            tracker.log_metrics({f"member_{number}/{name}": value for name, value in row.items()})
        metrics, summary = collect(rank(config, galleries, directory), split, tracker, directory / PICTURES)
    content = {"metrics": metrics, "members": rows, "split": split, "folds": folds}
    stage.complete({**content, "summary": f"{len(members)} models together: {summary}"})


def aligned_galleries(members: Sequence[Member], reports: Sequence[StageReport]) -> list[Gallery]:
    """The galleries of evaluated models, in the order of the first one's.

    Raises:
        StageError: they are not of the same images and captions.
    """
    from pipelines.retrieval.gallery import Gallery, GalleryError

    galleries = [Gallery.load(report.directory / GALLERY) for report in reports]
    for index in range(1, len(galleries)):
        try:
            galleries[index] = galleries[index].in_order_of(galleries[0])
        except GalleryError as error:
            names = f"{members[0].reference} and {members[index].reference}"
            raise StageError(
                f"{names} cannot be put side by side: {error}; give both the same split of the same images"
            ) from error
    return galleries


def _print_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("model", *_COLUMNS)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(f"{row[key]:.1f}" for key in _COLUMNS.values()))
    console().print(table)
