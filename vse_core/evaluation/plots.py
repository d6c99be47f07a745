"""Figures of a training run: loss, recalls, and the pooling weights that GPO has learned.

The figures are built without pyplot, so nothing is global and nothing has to be closed. Colours are those of Okabe and
Ito ("Color Universal Design", 2008), which stay apart under every common colour deficiency; where two lines could still
be taken for each other they also differ in marker or dash.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator

OKABE_ITO: dict[str, str] = {
    **{"black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73"},
    **{"yellow": "#F0E442", "blue": "#0072B2", "vermillion": "#D55E00", "purple": "#CC79A7"},
}
GREY = "#6B6B6B"

# Above this ratio of largest to smallest loss a linear axis flattens the part that matters.
_LOG_FROM_RATIO = 20.0
# Above this number of points single steps are noise, and a running median carries the message.
SMOOTH_FROM_POINTS = 60

_RECALL_RANKS = (1, 5, 10)
_RANK_STYLES = {1: ("blue", "o"), 5: ("vermillion", "s"), 10: ("green", "^")}
_DIRECTIONS = {"i2t": "Image to text", "t2i": "Text to image"}
# Yellow is left out: on white it is too light for a thin line.
LINE_STYLES = (("blue", "o"), ("vermillion", "s"), ("green", "^"), ("purple", "D"), ("orange", "v"), ("sky", "P"))


def plot_loss_curve(
    losses: Sequence[Mapping[str, float]], all_negatives_steps: int = 0, plateau: float | None = None
) -> Figure:
    """Plot the training loss by optimiser step, on a logarithmic axis where it spans more than a factor of 20.

    Args:
        losses: `step` and `loss` of each logged step, steps ascending, at least one.
        all_negatives_steps: steps of training on the sum over all negatives, marked by a vertical line if not 0.
        plateau: the loss of a collapsed model under the hardest negative (2 * batch * margin for a summed hinge loss);
            drawn as a reference unless None.
    """
    x = np.array([entry["step"] for entry in losses])
    y = np.array([entry["loss"] for entry in losses], dtype=np.float64)
    figure, axes = figure_with_axes(8.0, 4.5)
    _draw_losses(axes, x, y)
    if plateau is not None:
        label = f"level of a collapsed model: {plateau:g}"
        axes.axhline(plateau, color=OKABE_ITO["vermillion"], linestyle=":", linewidth=1.6, label=label)
    positive = y[y > 0]
    logarithmic = len(positive) == len(y) and float(y.max() / y.min()) > _LOG_FROM_RATIO
    if logarithmic:
        _plain_log_scale(axes)
    else:
        axes.set_ylim(0.0, max(float(y.max()), plateau or 0.0, 1e-6) * 1.08)
    if all_negatives_steps > 0:
        label = f"hardest negatives after step {all_negatives_steps:,}"
        axes.axvline(all_negatives_steps, color=GREY, linestyle="--", linewidth=1.4, label=label)
    axes.set(title="Training loss", xlabel="optimiser step", ylabel="loss (log scale)" if logarithmic else "loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9)
    return figure


def _draw_losses(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    marker = "o" if len(x) == 1 else None
    if len(x) < SMOOTH_FROM_POINTS:
        axes.plot(x, y, color=OKABE_ITO["blue"], linewidth=1.8, label="loss", marker=marker)
        return
    axes.plot(x, y, color=OKABE_ITO["sky"], linewidth=0.9, label="loss of a step")
    median, window = running_median(y)
    axes.plot(x, median, color=OKABE_ITO["blue"], linewidth=2.0, label=f"median of {window} points")


def plot_recall_curves(history: Sequence[Mapping[str, float]], chance: float | None = None) -> Figure:
    """Plot R@1, R@5 and R@10 of both directions on one scale, and RSUM with its best epoch marked, by epoch.

    ``history`` has the result of each epoch as `RetrievalResult.as_dict` gives it; ``chance`` is the RSUM of a random
    ranking, drawn as a reference unless None.
    """
    epochs = range(1, len(history) + 1)
    recalls = [f"{direction}_r{rank:02}" for direction in _DIRECTIONS for rank in _RECALL_RANKS]
    figure = Figure(figsize=(12.0, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for axes, (direction, title) in zip((left, middle), _DIRECTIONS.items(), strict=True):
        for rank in _RECALL_RANKS:
            colour, marker = _RANK_STYLES[rank]
            values = [result[f"{direction}_r{rank:02}"] for result in history]
            style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "markersize": 5, "linewidth": 1.8}
            axes.plot(epochs, values, label=f"R@{rank}", **style)
        axes.set(title=title, ylabel="recall (%)")
    top = max(result[key] for result in history for key in recalls)
    for axes in (left, middle):
        # Room for the legend above the highest curve, but no tick above 100 %.
        axes.set_ylim(0.0, max(top, 1.0) * 1.2)
        axes.yaxis.set_major_locator(FixedLocator([tick for tick in axes.get_yticks() if tick <= 100]))
        axes.legend(frameon=False, fontsize=9, loc="upper center", ncol=3)
    _draw_rsum(right, epochs, [result["rsum"] for result in history], chance)
    for axes in (left, middle, right):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
    return figure


def plot_learning_rates(steps: Sequence[int], rates: Mapping[str, Sequence[float]]) -> Figure:
    """Plot the learning rate of each part of a model by optimiser step, on a logarithmic axis.

    Where a rate is 0, as before a part is trained at all, its line is interrupted. `rates` has the name of each part,
    and its rate at every step.
    """
    figure, axes = figure_with_axes(8.0, 3.6)
    for (colour, marker), (name, values) in zip(LINE_STYLES, rates.items(), strict=False):
        shown = np.where(np.asarray(values) > 0, values, np.nan)
        style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "markersize": 4.5, "linewidth": 1.8}
        axes.plot(steps, shown, label=name, markevery=max(1, len(steps) // 12), **style)
    axes.set(yscale="log", title="Learning rate", xlabel="optimiser step", ylabel="learning rate (log scale)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9)
    return figure


def plot_gpo_coefficients(
    image_weights: Mapping[int, Sequence[float]] | None, text_weights: Mapping[int, Sequence[float]] | None
) -> Figure:
    """Plot the weights that the Generalized Pooling Operator gives to the sorted values of sets of several lengths.

    A flat line at 1/N is mean pooling, a weight of 1 at rank 1 is max pooling; both are drawn as references. Each side
    has length N of the set -> its N weights, the largest value's first, or None where it is not pooled by GPO.
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
    _draw_max_pooling(axes)
    longest = max(weights)
    spaced = [tick for tick in MaxNLocator(nbins=9, integer=True).tick_values(0, longest) if 1 < tick <= longest]
    axes.xaxis.set_major_locator(FixedLocator([1, *spaced]))
    axes.legend(frameon=False, fontsize=9, loc="best")


def _draw_max_pooling(axes: Axes) -> None:
    """Mark max pooling as a star, or as an arrow upwards where a weight of 1 lies far above the learned ones."""
    label = "max pooling: 1 at rank 1"
    if axes.get_ylim()[1] >= 1:
        axes.plot([1], [1], color=OKABE_ITO["black"], marker="*", markersize=11, linestyle="none", label=label)
        return
    arrow = {"arrowstyle": "-|>", "color": OKABE_ITO["black"], "linewidth": 1.4}
    axes.annotate("", xy=(1, 1.0), xytext=(1, 0.88), xycoords=axes.get_xaxis_transform(), arrowprops=arrow)
    axes.plot([], [], color=OKABE_ITO["black"], marker=r"$\uparrow$", markersize=9, linestyle="none", label=label)


def _draw_rsum(axes: Axes, epochs: Sequence[float], rsums: Sequence[float], chance: float | None) -> None:
    best = int(np.argmax(rsums))
    axes.plot(epochs, rsums, color=OKABE_ITO["black"], marker="o", markersize=5, linewidth=1.8, label="RSUM")
    label = f"best: {rsums[best]:.1f} in epoch {epochs[best]:g}"
    star: dict[str, Any] = {"color": OKABE_ITO["orange"], "marker": "*", "markersize": 15, "linestyle": "none"}
    axes.plot([epochs[best]], [rsums[best]], label=label, **star)
    if chance is not None:
        axes.axhline(chance, color=GREY, linestyle=":", linewidth=1.6, label=f"chance: {chance:.1f}")
    axes.set(ylim=(0.0, min(612.0, max(max(rsums), chance or 0.0, 1.0) * 1.12)), title="Sum of the six recalls")
    axes.set_ylabel("RSUM (%, of 600)")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def running_median(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the median of a centred window, cut short at both ends, and the number of points in the window."""
    half = max(2, len(values) // 80)
    return np.array([np.median(values[max(0, at - half) : at + half + 1]) for at in range(len(values))]), 2 * half + 1


def _plain_log_scale(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with 1, 2 and 5 of every decade labelled as plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e6 else f"{value:.0e}"))
    axes.yaxis.set_minor_locator(FixedLocator([]))


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
