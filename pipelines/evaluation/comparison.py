"""Compare two models on the same queries: is one better, by how much, how sure is that, and on which queries?

python pipelines/compare.py --config pipelines/config/data/flickr8k.yaml flickr8k/2 flickr8k/1

Both are evaluated on the split of the configuration where they have not been. A difference of a metric comes with its
95 % interval and the chance to see one as large between equally good models, from a paired bootstrap over the images.
The tables of queries go to MLflow: all of them, and those that each model is furthest ahead in. Models of other
features of the same images name the configuration of these features:

    python pipelines/compare.py --config regions.yaml regions/1 grids/1 --second-config grids.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pipelines.evaluation.ensemble import Member, aligned_galleries
from pipelines.evaluation.evaluator import evaluate_model, metrics_of
from pipelines.runtime.stage import StageDir, StageError, StageReport, fingerprint
from pipelines.stages.runner import console

if TYPE_CHECKING:
    from vse_core.evaluation.bootstrap import MetricDifference, RankDifference
    from vse_core.evaluation.ranks import Ranks
    from vse_core.evaluation.recall import RetrievalRanks

NAME = "compare"
# Raised when the same models would give another comparison.
VERSION = 2

_WAYS = {"i2t": "image to text", "t2i": "text to image"}


def compare(first: Member, second: Member) -> StageReport:
    """Evaluate two models, compare their recalls and ranks, and print what was found.

    A run in MLflow, in the first model's experiment, holds under ``SPLIT/difference/``: ``rsum``, ``rsum_low``,
    ``rsum_high``, ``rsum_p`` and so on for every recall, and ``i2t_won``, ``i2t_lost``, ``i2t_drawn``, ``i2t_gained``,
    ``i2t_missed``, ``t2i_won`` and so on.

    Raises:
        StageError: a model does not fit its features, or the two are not of the same images, captions and folds.
    """
    folds = [member.config.evaluation.folds for member in (first, second)]
    if folds[0] != folds[1]:
        raise StageError(
            f"{NAME}: evaluation.folds is {folds[0]} for one model and {folds[1]} for the other; make it one"
        )
    members = (first, second)
    reports = [evaluate_model(member.config, member.model) for member in members]
    for member, report in zip(members, reports, strict=True):
        member.config.mirror.pull(report.directory)
    content = {"version": VERSION, "models": [str(report.directory.name) for report in reports]}
    stage = StageDir(first.config.work_dir, NAME, fingerprint(content), first.config.mirror)
    if not stage.is_complete():
        _compare(members, reports, stage)
    manifest = stage.read_manifest()
    _print(members, manifest)
    return StageReport(NAME, stage.path, manifest["summary"])


def _compare(members: tuple[Member, Member], reports: Sequence[StageReport], stage: StageDir) -> None:
    from pipelines.evaluation.protocols.rankings import Embedded, retrieval_rows
    from pipelines.evaluation.query_table import write_comparison
    from pipelines.tracking import PipelineRuns
    from vse_core.evaluation.bootstrap import compare_ranks, compare_retrieval

    config = members[0].config
    split, folds = config.dataset.eval_split, config.evaluation.folds
    galleries = aligned_galleries(members, reports)
    directory = stage.create()
    ranks = [Embedded([gallery], split, directory, (folds,)).ranks[folds] for gallery in galleries]
    recalls = compare_retrieval(ranks[0], ranks[1])
    won = {way: compare_ranks(*(_direction(each, way) for each in ranks)) for way in _WAYS}
    files = write_comparison(directory, *(retrieval_rows(each, galleries[0].records) for each in ranks))
    with PipelineRuns(config, stage.fingerprint) as runs, runs.parent as tracker:
        tracker.set_tags(
            {
                "vse.fingerprint": stage.fingerprint,
                "vse.models": " ".join(str(member.model) for member in members),
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
            "metrics": [metrics_of(report) for report in reports],
        }
    )


def _direction(ranks: RetrievalRanks, way: str) -> Ranks:
    return ranks.image_to_text if way == "i2t" else ranks.text_to_image


def _flat(recalls: dict[str, MetricDifference], won: dict[str, RankDifference]) -> dict[str, float]:
    """Names and values of the metrics of a comparison."""
    metrics: dict[str, float] = {}
    for name, found in recalls.items():
        metrics[name] = found.difference
        metrics |= {f"{name}_low": found.interval.low, f"{name}_high": found.interval.high, f"{name}_p": found.p_value}
    return metrics | {f"{way}_{key}": float(count) for way, found in won.items() for key, count in vars(found).items()}


def _print(members: Sequence[Member], manifest: dict[str, Any]) -> None:
    first, second = (member.reference for member in members)
    recalls = Table("", first, second, "difference", "95 % interval", "p")
    for name, (one, other, difference, low, high, p) in manifest["recalls"].items():
        row = (f"{one:.1f}", f"{other:.1f}", f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{p:.3f}")
        recalls.add_row(name, *row)
    ranks = Table("ranks of the queries", f"better: {first}", f"better: {second}", "equal", "R@1 gained", "R@1 missed")
    for way, found in manifest["ranks"].items():
        ranks.add_row(_WAYS[way], *(f"{found[key]:,}" for key in ("won", "lost", "drawn", "gained", "missed")))
    for table in (recalls, ranks):
        console().print(table)


def main() -> None:
    """Read the command line, compare two models and print what differs."""
    from pipelines.config import load_config
    from pipelines.registry.models import find_model
    from pipelines.runtime.cli import make_parser

    parser = make_parser("Compare two models on the same queries.")
    known = "model directory, or NAME, NAME@ALIAS, NAME/VERSION in MLflow"
    parser.add_argument("first", metavar="MODEL", help=known)
    parser.add_argument("second", metavar="OTHER", help=f"what it is compared with: {known}")
    parser.add_argument(
        "--second-config", type=Path, metavar="FILE", help="data and features of the other model (default: --config)"
    )
    parser.add_argument("--split", help="split to compare on instead of dataset.eval_split")
    options = parser.parse_args()
    overrides = [*options.set, *([f"dataset.eval_split={options.split}"] if options.split else [])]
    members = []
    for reference, file in ((options.first, options.config), (options.second, options.second_config or options.config)):
        config = load_config(file, overrides)
        members.append(Member(reference, config, find_model(reference, config.tracking_uri)))
    if options.dry_run:
        sys.stdout.write(f"would evaluate and compare {members[0].model} and {members[1].model}\n")
        return
    report = compare(*members)
    sys.stdout.write(f"{report.summary}\n{report.directory}\n")
