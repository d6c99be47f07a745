"""Figures of pooling weights, of the weight of the sentence and of how training went, and what all figures share.

The figures are built without pyplot, so nothing is global and nothing has to be closed. Colours are those of Okabe and
Ito ("Color Universal Design", 2008), which stay apart under every common colour deficiency; lines also differ in their
markers or dashes.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

OKABE_ITO: dict[str, str] = {
    **{"black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73"},
    **{"yellow": "#F0E442", "blue": "#0072B2", "vermillion": "#D55E00", "purple": "#CC79A7"},
}
GREY = "#6B6B6B"

# Yellow is left out: on white it is too light for a thin line.
LINE_STYLES = (("blue", "o"), ("vermillion", "s"), ("green", "^"), ("purple", "D"), ("orange", "v"), ("sky", "P"))
_LINES = [(*style, dash) for style, dash in zip(LINE_STYLES, ("-", "--", "-.", ":", "-"), strict=False)]


def plot_gpo_coefficients(
    image_weights: Mapping[int, Sequence[float]] | None, text_weights: Mapping[int, Sequence[float]] | None
) -> Figure:
    """Plot the weights that the Generalized Pooling Operator gives to the sorted values of sets of several lengths.

    A flat line at 1/N is mean pooling, a weight of 1 at rank 1 is max pooling; both are drawn as references. Each side
    has length N of the set -> its N weights, the largest value's first, or None if it is not pooled by GPO.
    """
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    panels = ((left, "Images: N grid cells or regions", image_weights), (right, "Texts: N tokens", text_weights))
    for axes, title, weights in panels:
        axes.set(title=title, xlabel="rank of the sorted value (1 = largest)", ylabel="weight")
        tidy(axes)
        if weights:
            _draw_weights(axes, weights)
        else:
            axes.text(0.5, 0.5, "not pooled by GPO", transform=axes.transAxes, ha="center", va="center", color=GREY)
            axes.set(xticks=[], yticks=[])
    return figure


def _draw_weights(axes: Axes, weights: Mapping[int, Sequence[float]]) -> None:
    """Draw the weights of each length, mean pooling as a dotted line in the same colour, and max pooling at rank 1."""
    highest = 0.0
    for place, (length, values) in enumerate(sorted(weights.items())):
        colour, marker = LINE_STYLES[place % len(LINE_STYLES)]
        ranks = np.arange(1, length + 1)
        style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "markersize": 4.5, "linewidth": 1.8}
        # No more than about a dozen markers a line, whatever its length; a single element still shows.
        axes.plot(ranks, np.asarray(values), label=f"N = {length}", markevery=max(1, length // 12), **style)
        axes.plot([1, length], [1 / length, 1 / length], color=OKABE_ITO[colour], linestyle=":", linewidth=1.3)
        highest = max(highest, float(max(values)), 1 / length)
    lowest = min(0.0, *(float(min(values)) for values in weights.values()))
    axes.set_ylim(lowest * 1.1, min(highest * 1.15, 1.08) if highest <= 1 else highest * 1.15)
    axes.set_xlim(0.5 - 0.01 * max(weights), max(weights) + 0.5)
    axes.plot([], [], color=GREY, linestyle=":", linewidth=1.3, label="mean pooling: 1/N")
    star: dict[str, Any] = {"color": OKABE_ITO["black"], "marker": "*", "markersize": 11, "linestyle": "none"}
    axes.plot([1], [1], label="max pooling: 1 at rank 1", **star)
    longest = max(weights)
    spaced = [tick for tick in MaxNLocator(nbins=9, integer=True).tick_values(0, longest) if 1 < tick <= longest]
    axes.xaxis.set_major_locator(FixedLocator([1, *spaced]))
    axes.legend(frameon=False, fontsize=9, loc="best")


def plot_alpha_sweep(
    alphas: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[float]]], quantity: str, chosen: float
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
            best = int(np.argmax(values))
            label = f"{name}: best {values[best]:.1f} at α = {alphas[best]:g}"
            style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "markersize": 4.5, "linewidth": 1.8}
            axes.plot(alphas, values, label=label, **style)
            star(axes, alphas[best], values[best], OKABE_ITO[colour])
        axes.axvline(chosen, color=GREY, linestyle="--", linewidth=1.4, label=f"in use: α = {chosen:g}", zorder=1)
        axes.set(title=title, xlabel="α: 0 = components alone, 1 = sentence alone", ylabel=quantity, xlim=(-0.03, 1.03))
        low, high = axes.get_ylim()
        # Room for the legend below the curves.
        axes.set_ylim(low - (high - low) * (0.1 * len(curves) + 0.1), high)
        axes.legend(fontsize=9, loc="lower center", facecolor="white", edgecolor="none", framealpha=1.0)
    return figure


def star(axes: Axes, x: float, y: float, colour: str) -> None:
    """Mark the best point of a line."""
    axes.plot([x], [y], marker="*", markersize=16, linestyle="none", markeredgecolor="black", color=colour, zorder=4)


def figure_with_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure (inches) with one pair of tidy axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Take away what carries no information, and add a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def plot_convergence(rsums: Mapping[str, Sequence[float]], split: str) -> Figure:
    """Plot RSUM after each epoch of several runs (VSE+2AD, appendix, figure 1: with ADOPT and without).

    The best epoch of each run is starred. No run, more than can be told apart, or one without an epoch is a ValueError.
    """
    _check(rsums, "epoch")
    figure, axes = figure_with_axes(7.5, 4.4)
    for (colour, marker, dash), (name, values) in zip(_LINES, rsums.items(), strict=False):
        epochs = range(1, len(values) + 1)
        best = int(np.argmax(values))
        label = f"{name}: best {values[best]:.1f} after epoch {best + 1}"
        style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "linestyle": dash, "linewidth": 1.8}
        axes.plot(epochs, values, label=label, markersize=5, **style)
        star(axes, best + 1, values[best], OKABE_ITO[colour])
    axes.set(xlabel="epoch", ylabel=f"RSUM on {split} (%, of 600)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def plot_negatives(numbers: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> Figure:
    """Plot the number of negatives that each pair is contrasted with, by optimiser step (VSE+2AD, appendix, figure 2).

    `numbers` has the name of each run, its steps, ascending, and the number of negatives at each. No run, more than can
    be told apart, or one without a step is a ValueError.
    """
    _check({name: values for name, (_, values) in numbers.items()}, "step")
    figure, axes = figure_with_axes(7.5, 4.2)
    for (colour, _, dash), (name, (steps, values)) in zip(_LINES, numbers.items(), strict=False):
        label = f"{name}: {values[0]:g} at first, {values[-1]:g} at last"
        axes.plot(steps, values, color=OKABE_ITO[colour], linestyle=dash, linewidth=1.2, label=label)
    axes.set(ylim=(0, None), xlabel="optimiser step", ylabel="negatives of each pair, K")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9)
    return figure


def _check(runs: Mapping[str, Sequence[float]], unit: str) -> None:
    if not 0 < len(runs) <= len(_LINES) or not all(map(len, runs.values())):
        counts = {name: len(values) for name, values in runs.items()}
        raise ValueError(f"1 to {len(_LINES)} runs of one {unit} at least can be plotted; got {counts}")
