"""The comparison of two evaluated models on the same queries, with a paired bootstrap over the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pipelines.evaluation.ensemble import EvaluatedModel, aligned_galleries
from pipelines.runtime.cli import console
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageDir, StageReport, fingerprint

if TYPE_CHECKING:
    from pipelines.schema.experiment import Experiment
    from pipelines.tracking import Tracker
    from preprocessing.storage import Mirror
    from vse_core.evaluation.bootstrap import MetricDifference, RankDifference

NAME = "compare"
# Raised when the same models would give another comparison.
VERSION = 2

_WAYS = {"i2t": "image to text", "t2i": "text to image"}


def compare(
    models: tuple[EvaluatedModel, EvaluatedModel], folds: int, split: str, mirror: Mirror, experiment: Experiment
) -> StageReport:
    """Compare the recalls and ranks of two evaluated models, and print the differences.

    The run in MLflow has under ``SPLIT/difference/``: ``rsum``, ``rsum_low``, ``rsum_high``, ``rsum_p`` and so on for
    every recall, and ``i2t_won``, ``i2t_lost``, ``i2t_drawn``, ``i2t_gained``, ``i2t_missed``, ``t2i_won`` and so on.
    Raises StageError if the two were not evaluated on the same images and captions.
    """
    from pipelines.tracking import PipelineRuns

    content = {"version": VERSION, "models": [model.directory.name for model in models]}
    stage = StageDir(mirror.root, NAME, fingerprint(content), mirror)
    if not stage.is_complete():
        with (
            exclusive(mirror, stage.path),
            PipelineRuns(experiment, stage.fingerprint) as runs,
            runs.parent as tracker,
        ):
            _compare(models, folds, split, stage, tracker)
    manifest = stage.read_manifest()
    _print(models, manifest)
    return StageReport(NAME, stage.path, manifest["summary"])


def _compare(
    models: tuple[EvaluatedModel, EvaluatedModel], folds: int, split: str, stage: StageDir, tracker: Tracker
) -> None:
    from pipelines.evaluation.protocols.rankings import Embedded, retrieval_rows
    from pipelines.evaluation.query_table import write_comparison
    from vse_core.evaluation.bootstrap import compare_ranks, compare_retrieval

    galleries = aligned_galleries(models)
    directory = stage.create()
    ranks = [Embedded([gallery], split, directory, (folds,)).ranks[folds] for gallery in galleries]
    recalls = compare_retrieval(ranks[0], ranks[1])
    won = {
        "i2t": compare_ranks(*(each.image_to_text for each in ranks)),
        "t2i": compare_ranks(*(each.text_to_image for each in ranks)),
    }
    files = write_comparison(directory, *(retrieval_rows(each, galleries[0].records) for each in ranks))
    tracker.set_tags(
        {
            "vse.fingerprint": stage.fingerprint,
            "vse.models": " ".join(str(model.model) for model in models),
            "vse.split": split,
            "vse.protocol": f"paired comparison of image-text recall, {folds} fold(s)",
        }
    )
    tracker.log_metrics({f"{split}/difference/{name}": value for name, value in _flat(recalls, won).items()})
    for file in files:
        tracker.log_artifact(file, NAME)
    rsum = recalls["rsum"]
    summary = (
        f"{split} RSUM {rsum.first:.1f} and {rsum.second:.1f}: difference {rsum.difference:+.1f} "
        f"({rsum.interval.low:+.1f} to {rsum.interval.high:+.1f}, p = {rsum.p_value:.3f})"
    )
    rows = {
        name: [found.first, found.second, found.difference, found.interval.low, found.interval.high, found.p_value]
        for name, found in recalls.items()
    }
    stage.complete(
        {
            "summary": summary,
            "recalls": rows,
            "ranks": {way: vars(found) for way, found in won.items()},
            "metrics": [model.metrics for model in models],
        },
        [file.name for file in files],
    )


def _flat(recalls: dict[str, MetricDifference], won: dict[str, RankDifference]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, found in recalls.items():
        metrics[name] = found.difference
        metrics |= {f"{name}_low": found.interval.low, f"{name}_high": found.interval.high, f"{name}_p": found.p_value}
    return metrics | {f"{way}_{key}": float(count) for way, found in won.items() for key, count in vars(found).items()}


def _print(models: Sequence[EvaluatedModel], manifest: dict[str, Any]) -> None:
    first, second = (model.reference for model in models)
    recalls = Table("", first, second, "difference", "95 % interval", "p")
    for name, (one, other, difference, low, high, p) in manifest["recalls"].items():
        row = (f"{one:.1f}", f"{other:.1f}", f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{p:.3f}")
        recalls.add_row(name, *row)
    ranks = Table("ranks of the queries", f"better: {first}", f"better: {second}", "equal", "R@1 gained", "R@1 missed")
    for way, found in manifest["ranks"].items():
        ranks.add_row(_WAYS[way], *(f"{found[key]:,}" for key in ("won", "lost", "drawn", "gained", "missed")))
    for table in (recalls, ranks):
        console().print(table)
