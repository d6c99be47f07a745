"""The plot of the leaderboard: RSUM of every system with its interval, its seeds, and the linear floor."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from vse_core.evaluation.plots import OKABE_ITO

FLOOR = "linear CCA TF-IDF"
COLOURS = ("blue", "orange")


def draw(features: dict[str, Any]) -> Figure:
    """Plot a line for each system, the best at the top, and a colour for each set of features."""
    best: dict[str, float] = {}
    for found in features.values():
        for name, row in found["summary"].items():
            best[name] = max(best.get(name, 0), row["rsum"])
    names = sorted(best, key=lambda name: best[name])
    figure = Figure(figsize=(9, 0.8 + 0.27 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for (label, found), colour in zip(features.items(), COLOURS, strict=True):
        style = {"color": OKABE_ITO[colour]}
        axes.axvline(found["summary"][FLOOR]["rsum"], linestyle="--", linewidth=1, **style)
        for name, row in found["summary"].items():
            y = names.index(name)
            axes.plot(row["interval"], [y, y], linewidth=5, alpha=0.3, solid_capstyle="butt", **style)
            seeds = [run["metrics"]["rsum"] for run in found["runs"].get(name, {}).values()]
            axes.plot(seeds, [y] * len(seeds), "|", markersize=9, **style)
            axes.plot(row["rsum"], y, "o", markersize=5, label=label if name == FLOOR else None, **style)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="RSUM; bar: 95 % interval, strokes: seeds, dashed: linear CCA on TF-IDF")
    axes.xaxis.label.set_size(8)
    axes.grid(axis="x", alpha=0.3)
    axes.margins(y=0.02)
    axes.legend(loc="lower right", fontsize=8)
    return figure
