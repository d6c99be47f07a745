"""The comparison of two evaluated models on the same queries, with a paired bootstrap over the images."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from rich.table import Table

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluated_model import EvaluatedModel, aligned_galleries, done_once
from pipelines.evaluation.protocols.rankings import Embedded, retrieval_rows
from pipelines.runtime.cli import console
from pipelines.runtime.stage import StageDir, StageReport, fingerprint
from pipelines.tracking import Tracker
from vse_core.evaluation.bootstrap import compare_retrieval

NAME = "compare"
# Raised when the same models would give another comparison.
VERSION = 3
TABLE = "queries.parquet"
# Column of a model's table -> its name, behind the model's, in the comparison's.
_COMPARED = {
    "rank": "rank",
    "true": "true",
    "similarity": "similarity",
    "first": "top",
    "first_similarity": "top_similarity",
}

Models = tuple[EvaluatedModel, EvaluatedModel]


def compare(models: Models, config: PipelineConfig) -> StageReport:
    """Compare the recalls of two evaluated models, and print the differences; the configuration is the first one's.

    The run in MLflow has under ``SPLIT/difference/``: ``rsum``, ``rsum_low``, ``rsum_high``, ``rsum_p`` and so on for
    every recall; and all queries with the ranks by both models, those first in which the first model leads most.
    Raises StageError if the two were not evaluated on the same images and captions.
    """
    content = {"version": VERSION, "models": [model.directory.name for model in models]}
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    manifest = done_once(stage, config, _compare, models, config, stage)
    _print(models, manifest["recalls"])
    return StageReport(NAME, stage.path, manifest["summary"])


def _compare(models: Models, config: PipelineConfig, stage: StageDir, tracker: Tracker) -> None:
    galleries = aligned_galleries(models, config.mirror)
    folds, split = config.evaluation.folds, config.dataset.eval_split
    directory = stage.create()
    ranks = [Embedded([gallery], split, directory, (folds,)).ranks[folds] for gallery in galleries]
    recalls = compare_retrieval(ranks[0], ranks[1])
    first, second = (pa.concat_tables(retrieval_rows(each, galleries[0].records)) for each in ranks)
    pa.parquet.write_table(_both(first, second), directory / TABLE)
    rows = {
        name: [found.first, found.second, found.difference, found.interval.low, found.interval.high, found.p_value]
        for name, found in recalls.items()
    }
    tags = {"vse.models": " ".join(str(model.model) for model in models), "vse.split": split}
    tracker.set_tags({**tags, "vse.protocol": f"paired comparison of image-text recall, {folds} fold(s)"})
    tracker.log_metrics(
        {
            f"{split}/difference/{name}{suffix}": value
            for name, row in rows.items()
            for suffix, value in zip(("", "_low", "_high", "_p"), row[2:], strict=True)
        }
    )
    tracker.log_artifact(directory / TABLE, NAME)
    one, other, difference, low, high, p = rows["rsum"]
    summary = (
        f"{split} RSUM {one:.1f} and {other:.1f}: difference {difference:+.1f} ({low:+.1f} to {high:+.1f}, p = {p:.3f})"
    )
    metrics = [model.metrics for model in models]
    stage.complete({"summary": summary, "recalls": rows, "metrics": metrics}, [TABLE])


def _both(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return two models' rows of the same queries as one table, sorted by the lead of the first model."""
    table = first.select(["direction", "query_id", "query"])
    for name, rows in (("first", first), ("second", second)):
        for column, label in _COMPARED.items():
            table = table.append_column(f"{name}_model_{label}", rows[column])
    # From rank 10 to 1 is further than from 1,000 to 900.
    lead_Q = np.log(second["rank"].to_numpy() / first["rank"].to_numpy())
    return table.take(np.argsort(-lead_Q, kind="stable"))


def _print(models: Models, recalls: dict[str, Any]) -> None:
    table = Table("", *(model.reference for model in models), "difference", "95 % interval", "p")
    for name, (one, other, difference, low, high, p) in recalls.items():
        row = (f"{one:.1f}", f"{other:.1f}", f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{p:.3f}")
        table.add_row(name, *row)
    console().print(table)
