"""The accounts of a run: what went wrong on the way, what it cost, and with which versions it was made."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata

from pipelines.reporting.page import Html, Section, heading, joined, missing, paragraph, table
from pipelines.reporting.recorded import Point, RecordedRun
from pipelines.reporting.run import Run

_LIBRARIES = ("torch", "transformers", "ray", "mlflow", "numpy", "matplotlib", "pillow", "spacy")
_COST_METRICS: dict[str, tuple[str, Callable[[list[float]], float], str]] = {
    "train/samples_per_second": ("samples/s, median", statistics.median, "{:,.1f}"),
    "train/step_seconds": ("seconds a step, median", statistics.median, "{:.3f}"),
    "train/data_wait_share": ("share of time waiting for data, median", statistics.median, "{:.1%}"),
    "system/memory_gb": ("memory of the first process, peak (GB)", max, "{:.2f}"),
    "system/gpu_memory_peak_gb": ("memory of its GPU, peak (GB)", max, "{:.2f}"),
    "system/gpu_use": ("share of time in which the GPU was at work, median", statistics.median, "{:.1%}"),
}


def failures(run: Run) -> Section:
    """Images set aside, starts that ended badly, and steps that had to be repeated."""
    parts = []
    for name, manifest in run.splits().items():
        records, set_aside = manifest["counts"]["records"], len(manifest["set_aside"])
        parts.append(paragraph(f"{name}: {set_aside:,} of {records:,} images were set aside (see Data)."))
    parts.append(_runs(run))
    parts.append(_repeated(run))
    skipped = run.logged("train", "train/skipped_steps")
    if skipped:
        parts.append(paragraph(f"Steps skipped because a gradient overflowed in half precision: {skipped[-1]:,.0f}."))
    return Section("Failures", joined(*parts))


def _runs(run: Run) -> Html:
    if run.outage:
        return missing(f"the runs in MLflow: {run.outage}")
    rows = [
        (stage, each.run_id, each.status, each.tags.get("error", ""))
        for stage, runs in run.recorded.items()
        for each in runs
        if each.status != "FINISHED"
    ]
    if not rows:
        return paragraph("Every recorded run of every stage came to its end.")
    return table(("stage", "MLflow run", "ended as", "error"), rows)


def _repeated(run: Run) -> Html:
    """How often training went back to a checkpoint, as far as its log of losses shows it."""
    points = [point for each in run.recorded["train"] for point in each.metrics.get("train/loss", ())]
    if not points:
        return missing("restarts of the training: MLflow has no steps of it")
    back = went_back(points)
    if not back:
        return paragraph("The training went from its first step to its last without repeating any that it logged.")
    places = ", ".join(f"from step {reached:,} to {again:,}" for reached, again in back)
    return paragraph(f"The training went back to a checkpoint and repeated steps {len(back)} time(s): {places}.")


def went_back(points: Sequence[Point]) -> list[tuple[int, int]]:
    """Where logged steps do not go on: the step that had been reached, and the one that was logged next.

    Args:
        points: in the order in which they were logged.
    """
    found, reached = [], 0
    for point in points:
        if point.step <= reached:
            found.append((reached, point.step))
        reached = point.step
    return found


def costs(run: Run) -> Section:
    """Seconds of each stage, and what each spent them on."""
    if run.outage:
        return Section("Costs", missing(f"times, speeds and memory: {run.outage}"))
    rows = [(stage, *_times(runs)) for stage, runs in run.recorded.items()]
    parts = [table(("stage", "begun (UTC)", "seconds", "runs in MLflow"), rows)]
    parts.append(paragraph("Seconds go from a stage's first start to its end, pauses between starts included."))
    speeds = [_extraction(run), *_measured(run)]
    known = [(name, value) for name, value in speeds if value]
    parts.append(table(("measured", "value"), known) if known else missing("speeds: none were logged"))
    unknown = [name for name, value in speeds if not value]
    if unknown:
        parts.append(missing(f"{'; '.join(unknown)}: not logged on this machine or by this version"))
    return Section("Costs", joined(*parts))


def _times(runs: Sequence[RecordedRun]) -> tuple[str, str, str]:
    if not runs:
        return "not recorded", "", "0"
    begun = datetime.fromtimestamp(runs[0].began / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    seconds = [each.seconds for each in runs]
    known = [each for each in seconds if each is not None]
    total = f"{sum(known):,.1f}" if len(known) == len(seconds) else "goes on"
    return begun, total, str(len(runs))


def _extraction(run: Run) -> tuple[str, str]:
    name = "images/s of the extraction, start of its processes included"
    images = sum(manifest["counts"]["images"] for manifest in run.splits().values())
    seconds = [each.seconds for each in run.recorded["extract"]]
    known = sum(each for each in seconds if each is not None)
    return name, f"{images / known:,.1f}" if images and known else ""


def _measured(run: Run) -> list[tuple[str, str]]:
    rows = []
    for metric, (name, aggregate, form) in _COST_METRICS.items():
        values = run.logged("train", metric)
        rows.append((name, form.format(aggregate(values)) if values else ""))
    return rows


def versions(run: Run) -> Section:
    """The code of each stage as its run names it, the libraries, and the outputs' fingerprints."""
    outputs = [(name, plan.fingerprint[:16], str(plan.directory)) for name, plan in run.plans.items()]
    libraries = [("python", platform.python_version()), *((name, _version(name)) for name in _LIBRARIES)]
    return Section(
        "Versions",
        joined(
            heading("Outputs"),
            table(("stage", "fingerprint", "folder"), outputs),
            heading("Code, as the runs in MLflow name it"),
            _code(run),
            heading("Libraries, as installed where this page was written"),
            table(("library", "version"), libraries),
        ),
    )


def _code(run: Run) -> Html:
    if run.outage:
        return missing(run.outage)
    rows = [
        (
            stage,
            each.tags.get("vse.version", ""),
            each.tags.get("mlflow.source.git.commit", "not a checkout"),
            {"true": "changed", "false": "as committed"}.get(each.tags.get("vse.changed", ""), ""),
        )
        for stage, runs in run.recorded.items()
        for each in runs
    ]
    return table(("stage", "version", "commit", "state"), rows) if rows else missing("no stage has a run in MLflow")


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"
