"""Plots of a search: RSUM over each key, and all trials as lines through parallel axes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator

from pipelines.tuning.results import Results, Trial, value_text
from pipelines.tuning.space import ROW, SearchConfig
from vse_core.evaluation.plots import OKABE_ITO, tidy

_COLUMNS = 3


def plot_sensitivity(results: Results, search: SearchConfig) -> Figure:
    """Plot the RSUM of every trial against each key that was searched; ended ones are hollow, the best is a star.

    Raises ValueError where no trial has an RSUM.
    """
    trials = _trained(results)
    rows = -(-len(search.domains) // _COLUMNS)
    columns = min(len(search.domains), _COLUMNS)
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    panels = iter(figure.subplots(rows, columns, squeeze=False).flat)
    for key, axes in zip(search.domains, panels, strict=False):
        _draw_sensitivity(axes, key, trials, search)
    for axes in panels:
        axes.set_visible(False)
    return figure


def _draw_sensitivity(axes: Axes, key: str, trials: Sequence[Trial], search: SearchConfig) -> None:
    scale = _Scale(key, trials, search)
    best = max(trials, key=_rsum)
    kinds = (
        ([trial for trial in trials if not trial.stopped_early and trial is not best], "blue", "trained to the end"),
        ([trial for trial in trials if trial.stopped_early and trial is not best], "none", "ended early"),
    )
    for some, face, label in kinds:
        if some:
            colour = OKABE_ITO.get(face, "none")
            places = [scale.place(trial) for trial in some]
            axes.scatter(places, list(map(_rsum, some)), facecolors=colour, edgecolors=OKABE_ITO["blue"], label=label)
    axes.scatter([scale.place(best)], [_rsum(best)], marker="*", s=160, color=OKABE_ITO["orange"], label="best")
    scale.apply(axes)
    axes.set_xlabel(key)
    axes.set_ylabel("RSUM (%, of 600)")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def plot_parallel_coordinates(results: Results, search: SearchConfig) -> Figure:
    """Plot every trial as a line through an axis for each key and one for RSUM, whose height is also the colour.

    Raises ValueError where no trial has an RSUM.
    """
    trials = sorted(_trained(results), key=_rsum)
    figure = Figure(figsize=(2.4 * (len(search.domains) + 1) + 1.2, 4.8), layout="constrained")
    axes = figure.subplots()
    scales = [_Scale(key, trials, search) for key in search.domains]
    rsums = Normalize(_rsum(trials[0]), max(_rsum(trials[-1]), _rsum(trials[0]) + 1e-6))
    colours = colormaps["viridis"]
    for trial in trials:
        heights = [*(scale.share(trial) for scale in scales), float(rsums(_rsum(trial)))]
        style: dict[str, Any] = {"linestyle": "--" if trial.stopped_early else "-", "linewidth": 1.8}
        axes.plot(range(len(heights)), heights, color=colours(float(rsums(_rsum(trial)))), **style)
    for place, scale in enumerate(scales):
        for share, label in scale.labels():
            axes.annotate(
                label, (place, share), xytext=(-4, 0), textcoords="offset points", ha="right", va="center", fontsize=8
            )
    for share in (0.0, 1.0):
        axes.annotate(
            f"{rsums.vmin if share == 0 else rsums.vmax:.1f}",
            (len(scales), share),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    for place in range(len(scales) + 1):
        axes.axvline(place, color="#888888", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(scales) + 1), [*(scale.key for scale in scales), "RSUM"])
    axes.set_yticks([])
    axes.set_xlim(-0.6, len(scales) + 0.35)
    axes.spines[:].set_visible(False)
    axes.set_title("dashed: ended early", fontsize=9)
    figure.colorbar(ScalarMappable(rsums, colours), ax=axes, label="RSUM (%, of 600)")
    return figure


def plot_grid(results: Results, search: SearchConfig) -> Figure:
    """Plot the mean RSUM of every combination of two keys, the best framed (VSE-infinity, figure 6).

    Raises ValueError where it is another search, or no setting has an RSUM.
    """
    keys = list(search.domains)
    if len(keys) != 2 or any(domain.values is None for domain in search.domains.values()):
        raise ValueError(f"a grid is drawn of two keys with values; the search {search.name!r} has {', '.join(keys)}")
    rows, columns = ([value_text(value) for value in search.domains[key].extremes] for key in keys)
    means = np.full((len(rows), len(columns)), np.nan)
    for setting in results.by_setting():
        place = tuple(
            names.index(value_text(setting.settings[key])) for names, key in zip((rows, columns), keys, strict=True)
        )
        means[place] = np.nan if setting.mean is None else setting.mean
    if np.isnan(means).all():
        raise ValueError("there is no setting with an RSUM to plot")
    figure = Figure(figsize=(2.6 + 1.15 * len(columns), 1.8 + 0.62 * len(rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(means, cmap="viridis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, column), mean in np.ndenumerate(means):
        text = "none" if np.isnan(mean) else f"{mean:.1f}"
        colour = "black" if np.isnan(mean) or mean > middle else "white"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=10)
    best_row, best_column = np.unravel_index(int(np.nanargmax(means)), means.shape)
    frame = Rectangle((best_column - 0.5, best_row - 0.5), 1, 1, fill=False, edgecolor=OKABE_ITO["vermillion"])
    frame.set(linewidth=4, label=f"best: {np.nanmax(means):.1f}", clip_on=False)
    axes.add_patch(frame)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(keys[1])
    axes.set_ylabel(keys[0])
    axes.legend(handles=[frame], frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    figure.colorbar(image, ax=axes, label="RSUM (%, of 600)")
    return figure


def plot_rows(results: Results, search: SearchConfig) -> Figure:
    """Plot R@1 both ways and RSUM of every row, in the order of the search (VSE-infinity, table 1 and figure 4).

    Points are means over the seeds. Raises ValueError where it is no search over rows, or no row has an RSUM.
    """
    if not search.rows:
        raise ValueError(f"rows are drawn of a search with the method rows; {search.name!r} has {search.method}")
    settings = {setting.settings[ROW]: setting for setting in results.by_setting() if setting.mean is not None}
    if not settings:
        raise ValueError("there is no row with an RSUM to plot")
    names = list(search.rows)
    figure = Figure(figsize=(11, 1.2 + 0.34 * len(names)), layout="constrained")
    titles = ("image to text R@1 (%)", "text to image R@1 (%)", "RSUM (%, of 600)")
    for axes, title in zip(figure.subplots(1, len(titles), sharey=True), titles, strict=True):
        key = {titles[0]: "i2t_r01", titles[1]: "t2i_r01"}.get(title)
        points = {name: setting.mean if key is None else setting.recalls.get(key) for name, setting in settings.items()}
        _draw_points(axes, title, names, {name: value for name, value in points.items() if value is not None})
    return figure


def _draw_points(axes: Axes, title: str, names: Sequence[str], values: Mapping[str, float]) -> None:
    """Draw a point and its value for every row, the best in another colour and form."""
    best = max(values, key=lambda name: values[name], default=None)
    for place, name in enumerate(names):
        if name not in values:
            axes.annotate("failed", (0.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
            continue
        style: dict[str, Any] = {"marker": "*", "s": 110} if name == best else {"marker": "o", "s": 36}
        axes.scatter([values[name]], [place], color=OKABE_ITO["vermillion" if name == best else "blue"], **style)
        axes.annotate(
            f"{values[name]:.1f}",
            (values[name], place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    tidy(axes)
    axes.margins(x=0.25)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(title)


class _Scale:
    """The positions of a key's values on an axis: by size, by its logarithm, or one after the other."""

    def __init__(self, key: str, trials: Sequence[Trial], search: SearchConfig) -> None:
        domain = search.domains[key]
        self.key = key
        self.is_logarithmic = domain.log_uniform is not None
        drawn = [trial.settings[key] for trial in trials]
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in drawn)
        self._named = None if domain.values is None and is_number else [value_text(value) for value in domain.extremes]
        self._bounds = (0.0, 1.0)
        places = [float(number) for number in range(len(domain.extremes))] if self._named else list(domain.extremes)
        shown = [np.log(place) if self.is_logarithmic else place for place in places]
        self._bounds = (float(min(shown)), float(max(shown)))

    def place(self, trial: Trial) -> float:
        """Return the position of a trial on the axis."""
        value = trial.settings[self.key]
        return float(value) if self._named is None else float(self._named.index(value_text(value)))

    def share(self, trial: Trial) -> float:
        """Return the position from 0 to 1."""
        low, high = self._bounds
        place = self.place(trial)
        shown = np.log(place) if self.is_logarithmic else place
        return float((shown - low) / (high - low)) if high > low else 0.5

    def labels(self) -> list[tuple[float, str]]:
        """Return the labels of an axis from 0 to 1."""
        if self._named is not None:
            last = max(len(self._named) - 1, 1)
            single = len(self._named) == 1
            return [(0.5 if single else number / last, name) for number, name in enumerate(self._named)]
        low, high = (np.exp(bound) if self.is_logarithmic else bound for bound in self._bounds)
        return [(0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")]

    def apply(self, axes: Axes) -> None:
        """Set up the horizontal axis of a panel."""
        if self._named is not None:
            axes.set_xticks(range(len(self._named)), self._named)
            axes.set_xlim(-0.5, len(self._named) - 0.5)
        elif self.is_logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(FixedLocator([]))


def _trained(results: Results) -> list[Trial]:
    trials = [trial for trial in results.trials if trial.rsum is not None]
    if not trials:
        raise ValueError("there is no trial with an RSUM to plot")
    return trials


def _rsum(trial: Trial) -> float:
    assert trial.rsum is not None
    return trial.rsum
