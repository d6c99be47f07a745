"""The results of a run: its metrics next to what the papers report of the same protocol, or of the nearest there is."""

from collections.abc import Mapping
from typing import Any

from pipelines.reporting.curves import evaluation_images
from pipelines.reporting.images import ReportImage
from pipelines.reporting.published import RECALLS, published_rows
from pipelines.reporting.run import Run
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS

# Shown for data of which the papers report nothing.
_REFERENCE = "flickr30k_1k"
# Images that the galleries show in another form, and that the curves have shown.
_SHOWN_ELSEWHERE = ("text_to_image", "image_to_text", "gpo_coefficients")


def results(run: Run) -> dict[str, Any]:
    """Return the values of `report/results.html`."""
    metrics = run.manifest("evaluate").get("metrics") or {}
    if not metrics:
        return {"metrics": []}
    config = run.config
    split, folds = config.dataset.eval_split, config.evaluation.folds
    title = f"Retrieval on {split}" + (f", mean of {folds} folds" if folds > 1 else "")
    published = [name for name in config.evaluation.protocols if name in RETRIEVAL_PROTOCOLS and published_rows(name)]
    tables = [(title, [measured_row(config.name, metrics)])]
    for name in published:
        rows = [measured_row(config.name, metrics, f"{name}/"), *_published_cells(name)]
        tables.append((RETRIEVAL_PROTOCOLS[name].title, rows))
    other_data = {"title": RETRIEVAL_PROTOCOLS[_REFERENCE].title, "rows": _published_cells(_REFERENCE)}
    files = [file for file in evaluation_images(run) if not file.stem.startswith(_SHOWN_ELSEWHERE)]
    return {
        "metrics": [(name, f"{value:.4g}") for name, value in sorted(metrics.items())],
        "tables": tables,
        "other_data": None if published else other_data,
        "data": f"{config.dataset.format}, {split}",
        "images": [
            ReportImage.from_png(file.read_bytes(), f"{file.stem.replace('_', ' ').capitalize()}.") for file in files
        ],
    }


def measured_row(name: str, metrics: Mapping[str, float], prefix: str = "") -> tuple[str, ...]:
    """Return a table's row of measured metrics, with their 95 % interval as the remark."""
    low, high = (metrics.get(f"{prefix}rsum_{bound}") for bound in ("low", "high"))
    interval = "" if low is None or high is None else f"95 % interval of RSUM: {low:.1f} to {high:.1f}"
    recalls = (f"{metrics[prefix + recall]:.1f}" for recall in RECALLS)
    return (name, *recalls, f"{metrics[f'{prefix}rsum']:.1f}", "measured", interval)


def _published_cells(protocol: str) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.system}, {row.features}, {row.text}",
            *(f"{recall:.1f}" for recall in row.recalls),
            f"{row.rsum:.1f}",
            f"published ({row.source})",
            row.remark,
        )
        for row in published_rows(protocol)
    ]
