"""The accounts of a run: its data, what failed, what it cost, and with which versions it was made."""

import platform
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from pipelines.reporting.recorded import RecordedRun
from pipelines.reporting.run import Run

_LIBRARIES = ("torch", "transformers", "ray", "mlflow", "numpy", "matplotlib", "pillow", "spacy")
_COST_METRICS: dict[str, tuple[str, Callable[[list[float]], float], str]] = {
    "train/samples_per_second": ("samples/s, median", statistics.median, "{:,.1f}"),
    "train/step_seconds": ("seconds a step, median", statistics.median, "{:.3f}"),
    "train/data_wait_share": ("share of time waiting for data, median", statistics.median, "{:.1%}"),
    "system/gpu_memory_peak_gb": ("memory of the first GPU, peak (GB)", max, "{:.2f}"),
}


_LISTED = 100  # skipped images


def data(run: Run) -> dict[str, Any]:
    """Return the values of `report/data.html`: images and captions by split, and which images were skipped."""
    manifests = run.splits()
    splits = []
    for name, manifest in manifests.items():
        counts = manifest["counts"]
        numbers = (counts[key] for key in ("records", "images", "captions", "shards"))
        splits.append((name, *(f"{number:,}" for number in numbers), f"{counts['bytes'] / 1e6:,.1f}"))
    skipped = [
        (name, item.get("image_id", ""), item.get("reason", ""))
        for name, manifest in manifests.items()
        for item in manifest["skipped"]
    ]
    reasons = Counter((split, reason) for split, _, reason in skipped).most_common()
    return {
        "splits": splits,
        "vocabulary": run.manifest("train").get("vocabulary_size"),
        "truncated": run.manifest("train").get("captions_truncated", 0),
        "reasons": [(split, reason, f"{count:,}") for (split, reason), count in reasons],
        "skipped": skipped[:_LISTED],
        "total": len(skipped),
    }


def failures(run: Run) -> dict[str, Any]:
    """Return the values of `report/failures.html`: skipped images, and runs that failed."""
    overflows = run.logged("train", "train/skipped_steps")
    return {
        "splits": [
            (name, len(manifest["skipped"]), manifest["counts"]["records"]) for name, manifest in run.splits().items()
        ],
        "outage": run.outage,
        "unfinished": [
            (stage, each.run_id, each.status, each.tags.get("error", ""))
            for stage, each in _all_runs(run)
            if each.status != "FINISHED"
        ],
        "overflows": overflows[-1] if overflows else None,
    }


def costs(run: Run) -> dict[str, Any]:
    """Return the values of `report/costs.html`: seconds of each stage, speeds and memory."""
    images = sum(manifest["counts"]["images"] for manifest in run.splits().values())
    seconds = sum(each.seconds or 0 for each in run.recorded["extract"])
    measured = {
        "images/s of the extraction, start of its processes included": f"{images / seconds:,.1f}" if seconds else ""
    }
    for metric, (name, aggregate, form) in _COST_METRICS.items():
        values = run.logged("train", metric)
        measured[name] = form.format(aggregate(values)) if values else ""
    return {
        "outage": run.outage,
        "stages": [(stage, *_times(runs)) for stage, runs in run.recorded.items()],
        "measured": [(name, value) for name, value in measured.items() if value],
        "unknown": [name for name, value in measured.items() if not value],
    }


def _times(runs: Sequence[RecordedRun]) -> tuple[str, str, str]:
    if not runs:
        return "not recorded", "", "0"
    started = datetime.fromtimestamp(runs[0].began / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    known = [each.seconds for each in runs if each.seconds is not None]
    return started, f"{sum(known):,.1f}" if len(known) == len(runs) else "running", str(len(runs))


def versions(run: Run) -> dict[str, Any]:
    """Return the values of `report/versions.html`: the code of each stage, the libraries and the fingerprints."""
    states = {"true": "changed", "false": "as committed"}
    return {
        "outputs": [(name, plan.fingerprint[:16], str(plan.directory)) for name, plan in run.plans.items()],
        "outage": run.outage,
        "code": [
            (
                stage,
                each.tags.get("vse.version", ""),
                each.tags.get("mlflow.source.git.commit", "not a checkout"),
                states.get(each.tags.get("vse.changed", ""), ""),
            )
            for stage, each in _all_runs(run)
        ],
        "libraries": [("python", platform.python_version()), *((name, _version(name)) for name in _LIBRARIES)],
    }


def _all_runs(run: Run) -> list[tuple[str, RecordedRun]]:
    return [(stage, each) for stage, runs in run.recorded.items() for each in runs]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"
