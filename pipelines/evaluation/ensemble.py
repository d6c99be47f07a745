"""Several models of the same images, evaluated together by the mean of their similarities.

This is how VSE-infinity and VSE+2AD combine models of region, grid and patch features.
"""

from collections.abc import Sequence

from rich.table import Table

from pipelines.config import PipelineConfig
from pipelines.evaluation import PICTURES
from pipelines.evaluation.evaluated_model import EvaluatedModel, aligned_galleries, done_once
from pipelines.evaluation.evaluator import collect, rank
from pipelines.runtime.cli import console
from pipelines.runtime.stage import StageDir, StageReport, fingerprint
from pipelines.tracking import Tracker

NAME = "ensemble"
# Raised when the same members would give other metrics.
VERSION = 2

_COLUMNS = {"RSUM": "rsum", "hubs corrected": "rsum_corrected"} | {
    f"{way} R@{k}": f"{way}_r{k:02}" for way in ("i2t", "t2i") for k in (1, 5, 10)
}


def evaluate_ensemble(members: Sequence[EvaluatedModel], config: PipelineConfig) -> StageReport:
    """Evaluate the mean of several models' similarities, and print a row for each model and one for the ensemble.

    Members are matched by the ids of the images; the configuration is the first one's. The run in MLflow has the
    metrics of the ensemble under the split's name and those of the members under `member_1`, `member_2` and so on.
    Raises StageError if images or captions differ.
    """
    content = {"version": VERSION, "members": [member.directory.name for member in members]}
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    manifest = done_once(stage, config, _evaluate, members, config, stage)
    names, rows = [*(member.reference for member in members), NAME], [*manifest["members"], manifest["metrics"]]
    columns = {title: key for title, key in _COLUMNS.items() if any(key in row for row in rows)}
    table = Table("model", *columns)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(f"{row[key]:.1f}" if key in row else "-" for key in columns.values()))
    console().print(table)
    return StageReport(NAME, stage.path, manifest["summary"])


def _evaluate(members: Sequence[EvaluatedModel], config: PipelineConfig, stage: StageDir, tracker: Tracker) -> None:
    galleries = aligned_galleries(members, config.mirror)
    settings, split = config.evaluation, config.dataset.eval_split
    tracker.set_tags(
        {
            "vse.data_fingerprint": " ".join(member.data_fingerprint for member in members),
            "vse.models": " ".join(str(member.model) for member in members),
            "vse.split": split,
            "vse.seed": config.seed,
            "vse.protocol": f"image-text recall of an ensemble of {len(members)}, {settings.folds} fold(s)",
        }
    )
    directory = stage.create()
    rows = [member.metrics for member in members]
    for number, row in enumerate(rows, start=1):
        tracker.log_metrics({f"member_{number}/{name}": value for name, value in row.items()})
    found = rank(settings, split, galleries, directory)
    metrics, summary, files = collect(found, split, tracker, directory / PICTURES)
    content = {"metrics": metrics, "members": rows, "split": split, "folds": settings.folds}
    content["summary"] = f"{len(members)} models together: {summary}"
    stage.complete(content, [PICTURES, *files])
