"""The results of a run: its metrics next to what the papers report of the same protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.reporting.published import figure_names, published_rows, sum_name
from pipelines.reporting.run import Run
from pipelines.templates.render import data_uri
from vse_core.evaluation.protocols import RECALLS, RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS

_TITLES = {
    **{name: protocol.title for name, protocol in (RETRIEVAL_PROTOCOLS | VIDEO_PROTOCOLS).items()},
    "cxc": "Crisscrossed Captions",
}
# Of the first 1,000 images; UniVSE's are COCO's.
_UNIVSE = {
    "attack": "Captions under attack, next to those of COCO's first 1,000 test images",
    "components": "Components that find images, next to those of COCO's first 1,000 test images",
    "dependencies": "Dependencies that images resolve, next to those of COCO's first 1,000 test images",
}
_WAYS = {"i": "image", "t": "text", "v": "video"}
_UNITS = {"map": "mAP", "accuracy": "accuracy"}
# Of a model with components: its sentences alone, and with components of one kind.
_PARTS = ("sentences", "objects", "attributes", "relations")


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
    comparable = {*_TITLES, *(_UNIVSE if config.evaluation.first_images == 1000 else ())}
    for name in (name for name in config.evaluation.protocols if name in comparable and published_rows(name)):
        names, total = figure_names(name), sum_name(name)
        parts = {f"{name}/": model} | {f"{name}_{part}/": f"{model}, {part}" for part in _PARTS}
        rows = [
            measured_row(title, metrics, prefix, names, total=total)
            for prefix, title in parts.items()
            if any(f"{prefix}{figure}" in metrics for figure in names)
        ]
        tables.append(((_TITLES | _UNIVSE)[name], _headers(names, total), [*rows, *_published_cells(name)]))
    return {
        "metrics": [(name, f"{value:.4g}") for name, value in sorted(metrics.items())],
        "tables": [(*table, [row[-2].partition(" ")[0] for row in table[-1]]) for table in tables],
        "images": [
            (data_uri(file.read_bytes(), "png"), f"{file.stem.replace('_', ' ').capitalize()}.")
            for file in sorted(run.plans["evaluate"].outputs["pictures"].glob("*.png"))
        ],
    }


def _headers(figures: Sequence[str], total: str = "rsum") -> list[str]:
    """The headers of a table: the direction or kind is named at its first recall, ``image to text R@1``."""
    total = total.upper() if total == "rsum" else total
    return ["", *map(_header, figures), total, "figures are", "remark"]


def _header(figure: str) -> str:
    of, _, unit = figure.rpartition("_")
    if unit in _UNITS:
        return f"{of.replace('_', ' ')} {_UNITS[unit]}"
    first = f"{_WAYS[of[0]]} to {_WAYS[of[2]]}" if "2" in of else of
    return f"{first} R@1" if unit == "r01" else f"R@{int(unit[1:])}"


def measured_row(
    name: str,
    metrics: Mapping[str, float],
    prefix: str = "",
    names: Sequence[str] = RECALLS,
    suffix: str = "",
    total: str = "rsum",
) -> tuple[str, ...]:
    """Return a table's row of measured metrics and their total, with its 95 % interval as the remark."""
    low, high = (metrics.get(f"{prefix}rsum{suffix}_{bound}") for bound in ("low", "high"))
    interval = "" if low is None or high is None else f"95 % interval of RSUM: {low:.1f} to {high:.1f}"
    figures = (_cell(metrics.get(f"{prefix}{figure}{suffix}")) for figure in (*names, total))
    return (name, *figures, "measured", interval)


def _published_cells(protocol: str) -> list[tuple[str, ...]]:
    return [
        (
            ", ".join(filter(None, (row.system, row.features, row.text))),
            *map(_cell, row.figures),
            _cell(row.printed_sum),
            f"published ({row.source})",
            row.remark,
        )
        for row in published_rows(protocol)
    ]


def _cell(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"
