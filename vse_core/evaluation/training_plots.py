"""Figures of how training went: RSUM by epoch of several runs, and the number of negatives over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vse_core.evaluation.plots import OKABE_ITO, figure_with_axes, star

_LINES = (
    ("blue", "o", "-"),
    ("vermillion", "s", "--"),
    ("green", "^", "-."),
    ("purple", "D", ":"),
    ("orange", "v", "-"),
)


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
