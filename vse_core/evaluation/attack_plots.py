"""Figures of robustness: recalls under attack by model, and by the weight of the sentence in a caption's vector."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vse_core.evaluation.plots import GREY, LINE_STYLES, OKABE_ITO, tidy
from vse_core.evaluation.recall import DirectionMetrics

_RECALLS = {"R@1": "r01", "R@5": "r05", "R@10": "r10"}
_BAR_WIDTH = 0.3


def plot_alpha_sweep(
    alphas: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    quantity: str = "R@1 (%)",
    chosen: float | None = None,
) -> Figure:
    """Plot metrics against alpha, the weight of the sentence in a caption's vector (UniVSE, figure 5).

    The maximum of each curve is starred, and named in the legend. `panels` has title of each panel -> name of each
    curve -> its metric (`quantity`, with its unit) at every alpha, which ascend. `chosen` is the alpha in use, drawn as
    a vertical line.
    """
    figure = Figure(figsize=(5.4 * len(panels) + 0.4, 4.4), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)
    for axes, (title, curves) in zip(grid.flat, panels.items(), strict=True):
        tidy(axes)
        for (colour, marker), (name, values) in zip(itertools.cycle(LINE_STYLES), curves.items(), strict=False):
            _draw_sweep(axes, alphas, values, name, OKABE_ITO[colour], marker)
        if chosen is not None:
            axes.axvline(chosen, color=GREY, linestyle="--", linewidth=1.4, label=f"in use: α = {chosen:g}", zorder=1)
        axes.set(title=title, xlabel="α: 0 = components alone, 1 = sentence alone", ylabel=quantity, xlim=(-0.03, 1.03))
        low, high = axes.get_ylim()
        # Room for the legend below the curves.
        axes.set_ylim(low - (high - low) * (0.1 * len(curves) + 0.1), high)
        axes.legend(fontsize=9, loc="lower center", facecolor="white", edgecolor="none", framealpha=1.0)
    return figure


def plot_attacks(results: Mapping[str, DirectionMetrics]) -> Figure:
    """Plot image-to-text recalls by the name of the attack (UniVSE, table 2), of which none may be one."""
    figure = Figure(figsize=(max(6.0, 0.42 * len(results) + 3.0), 7.2), layout="constrained")
    panels = figure.subplots(len(_RECALLS), 1, sharex=True)
    for axes, (title, field) in zip(panels, _RECALLS.items(), strict=True):
        tidy(axes)
        axes.grid(visible=False, axis="x")
        heights = [getattr(metrics, field) for metrics in results.values()]
        style: dict[str, Any] = {"color": OKABE_ITO["blue"], "edgecolor": "white", "linewidth": 0.6}
        bars = axes.bar(range(len(results)), heights, _BAR_WIDTH, label="this model", **style)
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1.5)
        axes.set(ylim=(0.0, max(*heights, 1.0) * 1.15), ylabel=f"{title} (%)")
        axes.tick_params(axis="x", length=0)
    panels[0].set_title("Image to text, by attack on the captions")
    panels[-1].set_xticks(range(len(results)), list(results))
    panels[-1].set_xlim(-0.5, len(results) - 0.5)
    figure.align_ylabels()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", frameon=False)
    return figure


def _draw_sweep(
    axes: Axes, alphas: Sequence[float], values: Sequence[float], name: str, colour: str, marker: str
) -> None:
    best = int(np.argmax(values))
    label = f"{name}: best {values[best]:.1f} at α = {alphas[best]:g}"
    axes.plot(alphas, values, color=colour, marker=marker, markersize=4.5, linewidth=1.8, label=label)
    star: dict[str, Any] = {"marker": "*", "markersize": 17, "linestyle": "none", "markeredgecolor": OKABE_ITO["black"]}
    axes.plot([alphas[best]], [values[best]], color=colour, zorder=4, **star)
