"""Figures of robustness: recalls under attack by model, and by the weight of the sentence in a caption's vector."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vse_core.evaluation.plots import GREY, LINE_STYLES, OKABE_ITO, tidy
from vse_core.evaluation.recall import DirectionMetrics

_RECALLS = {"R@1": "r01", "R@5": "r05", "R@10": "r10"}
_BARS = ("blue", "orange", "green", "purple", "sky", "vermillion", "yellow", "black")
# Of the distance between two attacks: a single model's bars would else be walls.
_WIDEST_BAR = 0.3


def plot_alpha_sweep(
    alphas: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    quantity: str = "R@1 (%)",
    chosen: float | None = None,
) -> Figure:
    """Plot metrics against alpha, the weight of the sentence in a caption's vector (UniVSE, figure 5).

    The maximum of each curve is starred, and named in the legend. `panels` has title of each panel -> name of each
    curve -> its metric (`quantity`, with its unit) at every alpha, which ascend; no panel, no curve in one, or a curve
    without a finite value for each alpha is a ValueError. `chosen` is the alpha in use, drawn as a vertical line.
    """
    if not panels or not all(panels.values()):
        raise ValueError("there are no metrics to plot: every panel needs at least one curve")
    figure = Figure(figsize=(5.4 * len(panels) + 0.4, 4.4), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)
    for axes, (title, curves) in zip(grid.flat, panels.items(), strict=True):
        tidy(axes)
        for (colour, marker), (name, values) in zip(_cycled(LINE_STYLES, len(curves)), curves.items(), strict=True):
            _draw_sweep(axes, alphas, values, name, OKABE_ITO[colour], marker)
        if chosen is not None:
            axes.axvline(chosen, color=GREY, linestyle="--", linewidth=1.4, label=f"in use: α = {chosen:g}", zorder=1)
        axes.set(title=title, xlabel="α: 0 = components alone, 1 = sentence alone", ylabel=quantity, xlim=(-0.03, 1.03))
        low, high = axes.get_ylim()
        # Room for the legend below the curves.
        axes.set_ylim(low - (high - low) * (0.1 * len(curves) + 0.1), high)
        axes.legend(fontsize=9, loc="lower center", facecolor="white", edgecolor="none", framealpha=1.0)
    return figure


def plot_attacks(results: Mapping[str, Mapping[str, DirectionMetrics]]) -> Figure:
    """Compare models under attack: image-to-text recalls by attack (UniVSE, table 2).

    `results` are the name of each model -> the name of each attack -> its metrics; retrieval without attack may be one
    of them. There is a panel each for R@1, R@5 and R@10, a group of bars for each attack, a colour for each model.

    Raises:
        ValueError: there is no model or no attack, there are more models than colours, or models lack an attack.
    """
    attacks = _checked_attacks(results)
    figure = Figure(figsize=(max(6.0, 0.42 * len(results) * len(attacks) + 3.0), 7.2), layout="constrained")
    panels = figure.subplots(len(_RECALLS), 1, sharex=True)
    width = min(0.8 / len(results), _WIDEST_BAR)
    for axes, (title, field) in zip(panels, _RECALLS.items(), strict=True):
        tidy(axes)
        axes.grid(visible=False, axis="x")
        for place, (colour, (model, by_attack)) in enumerate(zip(_BARS, results.items(), strict=False)):
            at = np.arange(len(attacks)) + (place - (len(results) - 1) / 2) * width
            heights = [getattr(by_attack[attack], field) for attack in attacks]
            style: dict[str, Any] = {"color": OKABE_ITO[colour], "edgecolor": "white", "linewidth": 0.6}
            bars = axes.bar(at, heights, width, label=model, **style)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=1.5)
        highest = max(getattr(metrics, field) for by_attack in results.values() for metrics in by_attack.values())
        axes.set(ylim=(0.0, max(highest, 1.0) * 1.15), ylabel=f"{title} (%)")
        axes.tick_params(axis="x", length=0)
    panels[0].set_title("Image to text, by attack on the captions")
    panels[-1].set_xticks(range(len(attacks)), attacks)
    panels[-1].set_xlim(-0.5, len(attacks) - 0.5)
    figure.align_ylabels()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncol=len(results), frameon=False)
    return figure


def _draw_sweep(
    axes: Axes, alphas: Sequence[float], values: Sequence[float], name: str, colour: str, marker: str
) -> None:
    if len(values) != len(alphas) or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{name!r} needs a finite value for each of {len(alphas)} alphas; got {list(values)}")
    best = int(np.argmax(values))
    label = f"{name}: best {values[best]:.1f} at α = {alphas[best]:g}"
    axes.plot(alphas, values, color=colour, marker=marker, markersize=4.5, linewidth=1.8, label=label)
    star: dict[str, Any] = {"marker": "*", "markersize": 17, "linestyle": "none", "markeredgecolor": OKABE_ITO["black"]}
    axes.plot([alphas[best]], [values[best]], color=colour, zorder=4, **star)


def _checked_attacks(results: Mapping[str, Mapping[str, DirectionMetrics]]) -> list[str]:
    """Return the attacks that all models met, or say what is missing."""
    if not results or not all(results.values()):
        raise ValueError("there are no results to plot: every model needs at least one attack")
    if len(results) > len(_BARS):
        raise ValueError(f"{len(results)} models cannot be told apart by {len(_BARS)} colours; plot fewer at once")
    attacks = list(dict.fromkeys(attack for by_attack in results.values() for attack in by_attack))
    for model, by_attack in results.items():
        missing = [attack for attack in attacks if attack not in by_attack]
        if missing:
            raise ValueError(f"{model!r} has no result for {', '.join(missing)}; evaluate it, or leave it out")
    return attacks


def _cycled(styles: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return [styles[place % len(styles)] for place in range(count)]
