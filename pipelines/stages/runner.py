"""The pipeline: wires the plans of its stages, runs them in order, records the runs in MLflow, prints a table."""

import itertools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from rich.table import Table

from pipelines import plugins
from pipelines.config import PipelineConfig, load_config
from pipelines.reporting.run import read_manifest, report_path
from pipelines.retrieval.options import default_tracking_uri
from pipelines.runtime import cluster
from pipelines.runtime.cli import console, make_parser, run_command
from pipelines.runtime.commands import command
from pipelines.runtime.lock import exclusive
from pipelines.runtime.logs import about
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import Plans, StageError, StagePlan, StageReport, disk_errors, fingerprint
from pipelines.schema.error import ConfigError
from pipelines.stages.evaluate.plan import EVALUATE
from pipelines.stages.extract.checks import Check
from pipelines.stages.extract.plan import EXTRACT, splits_of
from pipelines.stages.index.plan import INDEX
from pipelines.stages.parse.plan import PARSE
from pipelines.stages.preflight import check_before_start
from pipelines.stages.register.plan import REGISTER
from pipelines.stages.stage import Stage
from pipelines.stages.train.plan import TRAIN
from pipelines.tracking import PipelineRuns, recorded_run_url

log = logging.getLogger(__name__)

STAGES: dict[str, Stage] = {stage.name: stage for stage in (EXTRACT, PARSE, TRAIN, EVALUATE, INDEX, REGISTER)}


def known_stages() -> dict[str, Stage]:
    """Return the stages by name, those of plugins at the end: these get the plans of all others.

    A plugin's stage has no script of its own: it runs as a part of the complete pipeline, if the configuration has
    settings for it in `stages`. Raises ConfigError if its name is taken.
    """
    for stage in plugins.STAGES:
        if stage.name in STAGES:
            raise ConfigError(f"plugins: a stage named {stage.name!r} is there already; known: {', '.join(STAGES)}")
    return STAGES | {stage.name: replace(stage, is_added=True) for stage in plugins.STAGES}


def main(*stages: str, checks: Mapping[str, Check] | None = None) -> NoReturn:
    """Run stages as the command of this process and exit: 0 when all is done, 1 with one message when it is not.

    Without names all stages run. The user may ask for the checks of the extracted shards.
    """

    def command() -> None:
        parser = make_parser()
        for name, check in (checks or {}).items():
            text = (check.__doc__ or "").partition("\n")[0]
            parser.add_argument(f"--{name}", action="store_true", help=text, dest=name)
        options = parser.parse_args()
        config = load_config(options.config, options.set).for_dry_run(options.dry_run)
        for name, check in (checks or {}).items():
            if vars(options)[name]:
                splits = splits_of(config)
                folders = [] if options.dry_run else [split.directory.path for split in splits]
                with exclusive(config.mirror, *folders):
                    check(splits, config.mirror)
        run_stages(config, stages or known_stages(), options.dry_run)

    run_command(command)


def plan_stages(config: PipelineConfig, names: Sequence[str] = (), last: str | None = None) -> dict[str, StagePlan]:
    """Plan the useful stages and those among the names, up to the last one, each with the plans of those before it."""
    plans: dict[str, StagePlan] = {}
    for name, stage in known_stages().items():
        if stage.is_useful(config) or name in names:
            plans[name] = stage.plan(config, plans)
        if name == last:
            break
    return plans


def run_stages(config: PipelineConfig, names: Iterable[str], dry_run: bool = False, within: str | None = None) -> Plans:
    """Check the configuration, then bring stages up to date, print a table of the work done, and return all plans.

    The stages before them must be up to date. Captions are parsed if something needs the graphs, or if `parse` alone is
    asked for; a model without embeddings is neither indexed nor registered. `within` is the run in MLflow that the
    pipeline's run stands below. Raises ConfigError if the configuration does not fit what is there, StageError if a
    stage cannot do its work, and BusyError if another process is at this work.
    """
    config = config.for_dry_run() if dry_run else config
    names = list(names)
    check_before_start(config, TRAIN.name in names)
    names = _applicable(config, names)
    plans: Plans = plan_stages(config, names)
    if dry_run:
        _print_plan([plans[name] for name in names])
        return plans
    for before in itertools.takewhile(lambda name: name != names[0], plans):
        plans[before].require_complete()
    identity = pipeline_fingerprint(plans)
    if all(plans[name].complete for name in names):
        page = report_path(config.work_dir, identity)
        outcomes = [*(_nothing_to_do(plans[name]) for name in names), *([_reported(page)] if page.is_file() else [])]
    else:
        with exclusive(config.mirror, report_path(config.work_dir, identity).parent):
            # No run is opened for work that would have to wait.
            with exclusive(config.mirror, *itertools.chain.from_iterable(plans[name].folders for name in names)):
                pass
            outcomes, plans = _run(config, identity, plans, names, within)
    _print_outcomes(outcomes)
    console().print(f"MLflow: {_mlflow_address(config, identity)}", soft_wrap=True)
    return plans


def _applicable(config: PipelineConfig, names: list[str]) -> list[str]:
    """Return the useful stages, or all if none is useful; StageError if one of these needs embeddings."""
    useful = [name for name in names if known_stages()[name].is_useful(config)]
    if useful:
        return useful
    if any(known_stages()[name].needs == "embeddings" for name in names):
        raise StageError(
            f"{', '.join(names)}: {config.kind.title}'s model has no embeddings to search; it can only be evaluated"
        )
    return names


def report(config: PipelineConfig) -> Path:
    """Write the report of a pipeline, finished or not, and return its path; StageError if it cannot be written."""
    plans = plan_stages(config)
    return _write_report(config, pipeline_fingerprint(plans), plans)


def _write_report(config: PipelineConfig, identity: str, plans: Plans) -> Path:
    from pipelines.reporting.run import Run
    from pipelines.reporting.write import write_report

    with disk_errors("report", config.work_dir):
        return write_report(Run.read(config, plans), identity)


def pipeline_fingerprint(plans: Plans) -> str:
    """Return the identity of a pipeline: that of the outputs of all its stages."""
    return fingerprint([plan.fingerprint for plan in plans.values()])


def _run(
    config: PipelineConfig, identity: str, planned: Plans, names: Sequence[str], within: str | None
) -> tuple[list[StageReport], Plans]:
    outcomes: list[StageReport] = []
    plans: dict[str, StagePlan] = {}
    was_connected = cluster.is_connected()
    try:
        runs = PipelineRuns(config.experiment, identity, within=within)
        with runs, runs.parent as parent, about("", parent.run_id):
            checks = [known_stages()[name].check_cluster for name in names if not planned[name].complete]
            if any(checks) and cluster.cluster_address(config.ray.address):
                # The room on this machine alone has been checked already.
                cluster.connect(config.ray.address)
                for check in filter(None, checks):
                    check(config)
            parent.log_params(config.model_dump(mode="json"))
            parent.set_tags({f"vse.{name}.fingerprint": plan.fingerprint for name, plan in planned.items()})
            for name in planned:
                # Planned again: the output of an earlier stage decides the inputs of the later ones.
                plans[name] = known_stages()[name].plan(config, plans)
                used = (report_path(config.work_dir, identity).parent, *plans[name].folders)
                record_outputs(config.mirror, *used, model=config.registered_model)
                if name in names:
                    outcomes.append(_run_stage(config, name, plans, runs))
                    if log_headlines := known_stages()[name].log_headlines:
                        log_headlines(config, plans[name], parent)
                    headlines = sorted(outcomes, key=lambda each: not known_stages()[each.name].is_reported)
                    parent.describe("\n".join(f"- **{each.name}**: {each.summary}" for each in headlines))
            if any(known_stages()[name].is_reported for name in names):
                start = time.monotonic()
                outcomes.append(_reported(_write_report(config, identity, plans), time.monotonic() - start))
                parent.log_artifact(outcomes[-1].directory)
    finally:
        if not was_connected:
            cluster.disconnect()
    return outcomes, plans


def _run_stage(config: PipelineConfig, name: str, plans: dict[str, StagePlan], runs: PipelineRuns) -> StageReport:
    """Run a stage that is not complete, and replace its plan by the one afterwards."""
    if plans[name].complete:
        return _nothing_to_do(plans[name])
    start = time.monotonic()
    with exclusive(config.mirror, *plans[name].folders):
        # Another process may have completed it just before.
        plans[name] = known_stages()[name].plan(config, plans)
        if plans[name].complete:
            return _nothing_to_do(plans[name])
        with runs.child(name) as tracker, about(name, tracker.run_id):
            tracker.set_tags({"vse.fingerprint": plans[name].fingerprint})
            log.info("begins: %s", plans[name].size)
            report = known_stages()[name].run(config, plans, tracker)
            tracker.describe(report.summary)
            log.info("ends: %s", report.summary)
    plans[name] = known_stages()[name].plan(config, plans)
    return replace(report, seconds=time.monotonic() - start)


def _nothing_to_do(plan: StagePlan) -> StageReport:
    summary = read_manifest(plan.directory).get("summary", plan.size)
    return StageReport(plan.name, plan.directory, summary, up_to_date=True)


def _reported(page: Path, seconds: float = 0.0) -> StageReport:
    size = f"one page of {page.stat().st_size / 1e6:.1f} MB"
    return StageReport("report", page, size, up_to_date=not seconds, seconds=seconds)


def _print_plan(plans: Sequence[StagePlan]) -> None:
    table = Table("stage", "status", "size", "output", title="plan")
    for plan in plans:
        table.add_row(plan.name, plan.status, plan.size, str(plan.directory))
    console().print(table)


def _print_outcomes(outcomes: Sequence[StageReport]) -> None:
    table = Table("stage", "status", "seconds", "result", "output")
    for report in outcomes:
        status = "up to date" if report.up_to_date else "done"
        table.add_row(report.name, status, f"{report.seconds:.1f}", report.summary, str(report.directory))
    console().print(table)


def _mlflow_address(config: PipelineConfig, identity: str) -> str:
    page = recorded_run_url(config.experiment, identity) or config.tracking_uri
    if not config.tracking_uri.startswith("sqlite:"):
        return page
    default = [] if config.tracking_uri == default_tracking_uri() else ["--tracking-uri", config.tracking_uri]
    return f"{page} (served by: {command('ui', *default)})"
