"""Stages in order: the plan, the work, the runs in MLflow, and the table at the end."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from pipelines.config import PipelineConfig, load_config
from pipelines.reporting.published import RECALLS
from pipelines.runtime import cluster
from pipelines.runtime.cli import Repair, guarded, make_parser
from pipelines.runtime.stage import (
    MANIFEST,
    Stage,
    StageError,
    StagePlan,
    StageReport,
    fingerprint,
    manifest_in,
    unwritten,
)
from pipelines.stages.preflight import check_before_start
from pipelines.tracking import PipelineRuns, recorded_run_url

STAGES = ("extract", "parse", "train", "evaluate", "index", "register")
_OF_EMBEDDINGS = {"index", "register"}

# A run of one of these leaves a report behind; features alone have nothing to report.
_REPORTED = frozenset(("train", "evaluate", "register"))
# Width of tables in a log, where there is no terminal to ask.
_LOG_COLUMNS = 180


@dataclass(frozen=True)
class _Outcome:
    report: StageReport
    seconds: float


def main(*stages: str, repairs: Sequence[Repair] = ()) -> NoReturn:
    """Run stages as the command of this process and exit: 0 when all is done, 1 with one message when it is not.

    Args:
        stages: names of the stages, in their order.
        repairs: what the user may ask for beforehand.
    """

    def command() -> None:
        """Read the command line, repair what was asked for, and run the stages."""
        parser = make_parser(f"Stages: {', '.join(stages)}.")
        for repair in repairs:
            parser.add_argument(f"--{repair.option}", action="store_true", help=repair.help, dest=repair.option)
        options = parser.parse_args()
        config = load_config(options.config, options.set)
        for repair in repairs:
            if vars(options)[repair.option]:
                repair.run(config, options.dry_run)
        run_stages(config, stages, options.dry_run)

    sys.exit(guarded(command))


def run_stages(config: PipelineConfig, names: Sequence[str], dry_run: bool = False, within: str | None = None) -> None:
    """Check the configuration, then bring stages up to date and print what was done; or print what would be done.

    Args:
        config: the configuration.
        names: names out of `STAGES`, in their order; the stages before them must be up to date. Captions are parsed
            where something reads the graphs, or where `parse` alone is asked for; HGR's model, which has no embeddings
            to search, is neither indexed nor registered.
        dry_run: print the plan instead.
        within: MLflow's number of a run that the pipeline's own stands below.

    Raises:
        ConfigError: the configuration does not fit what is there.
        StageError: a stage cannot do its work.
    """
    check_before_start(config)
    names = _applicable(config, names)
    plans = _plans(config, names)
    if dry_run:
        _print_plan([plans[name] for name in names])
        return
    _require_inputs(plans, names)
    identity = _identity(plans)
    todo = [name for name in names if not plans[name].complete]
    if todo:
        outcomes = _run(config, identity, plans, names, within)
    else:
        outcomes = [*(_nothing_to_do(plans[name]) for name in names), *_earlier_report(config, identity)]
    _print_outcomes(outcomes)
    console().print(f"MLflow: {_mlflow_address(config, identity)}", soft_wrap=True)


def _applicable(config: PipelineConfig, names: Sequence[str]) -> list[str]:
    """The stages that there is a use for under a configuration; `parse` by itself always runs.

    Raises:
        StageError: what is asked for needs embeddings, and the model has none.
    """
    useless = {"parse"} if not config.reads_graphs and len(names) > 1 else set()
    if not config.kind.has_embeddings:
        useless |= _OF_EMBEDDINGS
    if useless.issuperset(names):
        raise StageError(
            f"{', '.join(names)}: {config.kind.title}'s model has no embeddings to search; it can only be evaluated"
        )
    return [name for name in names if name not in useless]


def report(config: PipelineConfig, identity: str | None = None) -> Path:
    """Write the report of a pipeline, whether it has come to its end or not.

    Args:
        config: the configuration.
        identity: of the pipeline's run; found from the plans of its stages where it is not given.

    Returns:
        The file.

    Raises:
        StageError: it cannot be written.
    """
    from pipelines.reporting.write import write_report

    plans = _plans(config)
    identity = identity or _identity(plans)
    useful = _applicable(config, STAGES)
    try:
        return write_report(config, identity, {name: plan for name, plan in plans.items() if name in useful})
    except OSError as error:
        raise unwritten("report", config.work_dir, error) from error


def _plans(config: PipelineConfig, names: Sequence[str] = ()) -> dict[str, StagePlan]:
    """What the stages of a pipeline would do now, in their order; captions are parsed where it is needed or named."""
    stages = [name for name in STAGES if name != "parse" or config.reads_graphs or name in names]
    return {name: _stage(name).plan(config) for name in stages}


def _identity(plans: Mapping[str, StagePlan]) -> str:
    return fingerprint([plan.fingerprint for plan in plans.values()])


def _run(
    config: PipelineConfig, identity: str, plans: dict[str, StagePlan], names: Sequence[str], within: str | None
) -> list[_Outcome]:
    outcomes = []
    was_connected = cluster.is_connected()
    try:
        if "train" in names and not plans["train"].complete and cluster.cluster_address(config) is not None:
            # Before hours of extraction; of this machine alone it is known already.
            cluster.connect(config)
            cluster.require_room(config)
        with PipelineRuns(config, identity, within=within) as runs, runs.parent as parent:
            parent.log_params(config.model_dump(mode="json"))
            parent.set_tags({f"vse.{name}.fingerprint": plan.fingerprint for name, plan in plans.items()})
            for name in names:
                outcomes.append(_run_stage(config, runs, name))
                parent.log_metrics(_headlines(config, outcomes[-1].report))
                parent.describe("\n".join(f"- **{each.report.name}**: {each.report.summary}" for each in outcomes))
            if _REPORTED.intersection(names):
                outcomes.append(_write_report(config, identity))
                parent.log_artifact(outcomes[-1].report.directory)
    finally:
        if not was_connected:
            cluster.disconnect()
    return outcomes


def _run_stage(config: PipelineConfig, runs: PipelineRuns, name: str) -> _Outcome:
    plan = _stage(name).plan(config)
    if plan.complete:
        return _nothing_to_do(plan)
    start = time.monotonic()
    with runs.child(name) as tracker:
        tracker.set_tags({"vse.fingerprint": plan.fingerprint})
        report = _stage(name).run(config, tracker)
        tracker.describe(report.summary)
    return _Outcome(report, time.monotonic() - start)


def _headlines(config: PipelineConfig, report: StageReport) -> dict[str, float]:
    """RSUM and recalls of an evaluation, for the pipeline's own row in MLflow; nothing of other stages."""
    if report.name != "evaluate":
        return {}
    found = manifest_in(report.directory)["metrics"]
    return {f"{config.dataset.eval_split}/{name}": found[name] for name in ("rsum", *RECALLS)}


def _nothing_to_do(plan: StagePlan) -> _Outcome:
    manifest = plan.directory / MANIFEST
    summary = json.loads(manifest.read_text(encoding="utf-8")).get("summary") if manifest.is_file() else None
    return _Outcome(StageReport(plan.name, plan.directory, summary or plan.size, up_to_date=True), 0.0)


def _write_report(config: PipelineConfig, identity: str) -> _Outcome:
    start = time.monotonic()
    path = report(config, identity)
    return _Outcome(StageReport("report", path, _size(path)), time.monotonic() - start)


def _earlier_report(config: PipelineConfig, identity: str) -> Iterator[_Outcome]:
    """The report that an earlier run has left, where there is one."""
    from pipelines.reporting.write import report_path

    path = report_path(config, identity)
    if path.is_file():
        yield _Outcome(StageReport("report", path, _size(path), up_to_date=True), 0.0)


def _size(page: Path) -> str:
    return f"one page of {page.stat().st_size / 1e6:.1f} MB"


def _stage(name: str) -> Stage:
    module: Stage = importlib.import_module(f"pipelines.stages.{name}")
    return module


def _require_inputs(plans: dict[str, StagePlan], names: Sequence[str]) -> None:
    """Refuse to start a stage whose inputs are not there.

    Raises:
        StageError: a stage before the first one is not up to date.
    """
    for name in itertools.takewhile(lambda name: name != names[0], plans):
        if not plans[name].complete:
            raise StageError(
                f"{names[0]}: needs the output of {name}, which is {plans[name].status} under this configuration; run "
                f"`python pipelines/{name}.py` with the same options first, or pipelines/full.py"
            )


def _print_plan(plans: Sequence[StagePlan]) -> None:
    table = Table("stage", "status", "size", "output", title="plan")
    for plan in plans:
        table.add_row(plan.name, plan.status, plan.size, str(plan.directory))
    console().print(table)


def _print_outcomes(outcomes: Sequence[_Outcome]) -> None:
    table = Table("stage", "status", "seconds", "result", "output")
    for outcome in outcomes:
        report = outcome.report
        status = "up to date" if report.up_to_date else "done"
        table.add_row(report.name, status, f"{outcome.seconds:.1f}", report.summary, str(report.directory))
    console().print(table)


def _mlflow_address(config: PipelineConfig, identity: str) -> str:
    """The page of the pipeline's run, and for a database how to start the server that shows it."""
    page = recorded_run_url(config, identity) or config.tracking_uri
    if not config.tracking_uri.startswith("sqlite:"):
        return page
    own = f"make ui VSE_WORK_DIR={config.work_dir}"
    other = f"mlflow server --backend-store-uri {config.tracking_uri}"
    return f"{page} (served by: {own if config.tracking.uri is None else other})"


def console() -> Console:
    """Where tables are printed."""
    # Paths may hold brackets, which are not meant as markup.
    return Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS, markup=False, highlight=False)
