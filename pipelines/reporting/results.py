"""The results of a run: its metrics next to what the papers report of the same protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.reporting.published import published_rows, recall_names
from pipelines.reporting.run import Run
from pipelines.templates.render import data_uri
from vse_core.evaluation.protocols import RECALLS, RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS

_TITLES = {
    **{name: protocol.title for name, protocol in (RETRIEVAL_PROTOCOLS | VIDEO_PROTOCOLS).items()},
    "cxc": "Crisscrossed Captions",
}
_WAYS = {"i": "image", "t": "text", "v": "video"}


def results(run: Run) -> dict[str, Any]:
    """Return the values of `report/results.html`."""
    metrics = run.manifest("evaluate").get("metrics") or {}
    if not metrics:
        return {"metrics": []}
    config = run.config
    split, folds = config.dataset.eval_split, config.evaluation.folds
    title = f"Retrieval on {split}" + (f", mean of {folds} folds" if folds > 1 else "")
    model = (
        config.name if config.training.epochs else f"{config.name}, {config.model.untrained(config.training.initial)}"
    )
    own = [measured_row(model, metrics)]
    if "rsum_corrected" in metrics:
        own.append(measured_row(f"{model}, hubs corrected", metrics, suffix="_corrected"))
    tables = [(title, _headers(RECALLS), own)]
    for name in (name for name in config.evaluation.protocols if name in _TITLES and published_rows(name)):
        names = recall_names(name)
        rows = [measured_row(model, metrics, f"{name}/", names), *_published_cells(name)]
        tables.append((_TITLES[name], _headers(names), rows))
    return {
        "metrics": [(name, f"{value:.4g}") for name, value in sorted(metrics.items())],
        "tables": tables,
        "images": [
            (data_uri(file.read_bytes(), "png"), f"{file.stem.replace('_', ' ').capitalize()}.")
            for file in sorted(run.plans["evaluate"].outputs["pictures"].glob("*.png"))
        ],
    }


def _headers(recalls: Sequence[str]) -> list[str]:
    """The headers of a table: the direction is named at its first recall, ``image to text R@1``."""
    names = [f"R@{int(recall[-2:])}" for recall in recalls]
    firsts = [f"{_WAYS[recall[0]]} to {_WAYS[recall[2]]} " if recall.endswith("r01") else "" for recall in recalls]
    return ["", *map("".join, zip(firsts, names, strict=True)), "RSUM", "figures are", "remark"]


def measured_row(
    name: str, metrics: Mapping[str, float], prefix: str = "", names: Sequence[str] = RECALLS, suffix: str = ""
) -> tuple[str, ...]:
    """Return a table's row of measured metrics, with their 95 % interval as the remark."""
    low, high = (metrics.get(f"{prefix}rsum{suffix}_{bound}") for bound in ("low", "high"))
    interval = "" if low is None or high is None else f"95 % interval of RSUM: {low:.1f} to {high:.1f}"
    recalls = (_cell(metrics[f"{prefix}{recall}{suffix}"]) for recall in names)
    return (name, *recalls, _cell(metrics.get(f"{prefix}rsum{suffix}")), "measured", interval)


def _published_cells(protocol: str) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.system}, {row.features}, {row.text}",
            *map(_cell, row.recalls),
            _cell(row.rsum),
            f"published ({row.source})",
            row.remark,
        )
        for row in published_rows(protocol)
    ]


def _cell(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"
