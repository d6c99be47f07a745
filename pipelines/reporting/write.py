"""The report of a run as a file: all its sections on one HTML page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipelines.reporting.configuration import configuration
from pipelines.reporting.data import data
from pipelines.reporting.galleries import galleries
from pipelines.reporting.results import results
from pipelines.reporting.run import Run, report_path
from pipelines.templates.render import render
from pipelines.tracking import recorded_run_url
from preprocessing.storage.atomic import write_bytes_atomic
from preprocessing.storage.redaction import redacted

# A section's name is its heading, its anchor and its template.
_SECTIONS: tuple[Callable[[Run], dict[str, Any]], ...] = (configuration, data, results, galleries)


def write_report(run: Run, identity: str) -> Path:
    """Write the report of a pipeline of this fingerprint, finished or not; the same outputs give the same bytes."""
    config, plans = run.config, run.plans
    done = sum(plan.complete for plan in plans.values())
    content = render(
        "report.html",
        title=f"{config.name}: {config.preset}, pipeline {identity[:16]}",
        state="All stages are done." if done == len(plans) else f"{done} of {len(plans)} stages are done.",
        address=recorded_run_url(config.experiment, identity) or config.tracking_uri,
        stages=[(name, plan.status, run.manifest(name).get("summary", plan.size)) for name, plan in plans.items()],
        sections={section.__name__: section_html(section, run) for section in _SECTIONS},
    )
    path = report_path(config.work_dir, identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, redacted(content).encode())
    return path


def section_html(section: Callable[[Run], dict[str, Any]], run: Run) -> Markup:
    """Render a section of the report."""
    return render(f"report/{section.__name__}.html", **section(run))
