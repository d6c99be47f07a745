"""The report as a file: all sections of a run on one page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.reporting.accounts import costs, failures, versions
from pipelines.reporting.curves import curves
from pipelines.reporting.data import data
from pipelines.reporting.galleries import galleries
from pipelines.reporting.page import joined, page, paragraph
from pipelines.reporting.recipe import lead, recipe
from pipelines.reporting.results import results
from pipelines.reporting.run import Run, report_path
from pipelines.runtime.stage import StagePlan
from preprocessing.storage.atomic import write_bytes_atomic

_SHEET_STYLE = (Path(__file__).parents[1] / "templates" / "sheet.css").read_text(encoding="utf-8")
_SECTIONS = (recipe, data, results, curves, galleries, failures, costs, versions)


def write_report(config: PipelineConfig, identity: str, plans: Mapping[str, StagePlan]) -> Path:
    """Write the report of a pipeline: of all its stages, done or not.

    The same outputs and runs give the same bytes.

    Args:
        config: the configuration.
        identity: fingerprint of the pipeline.
        plans: what each stage would do now, in their order.

    Returns:
        The file.
    """
    run = Run.read(config, plans)
    sections = [section(run) for section in _SECTIONS]
    done = sum(plan.complete for plan in plans.values())
    state = "All stages are done." if done == len(plans) else f"{done} of {len(plans)} stages are done."
    title = f"{config.name}: {config.preset}, pipeline {identity[:16]}"
    content = page(title, joined(paragraph(state), lead(run)), sections, _SHEET_STYLE)
    path = report_path(config.work_dir, identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, content.encode())
    return path
