"""The papers' figures of searches: a grid of two keys, and the rows of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipelines.tuning.results import Results, value_text
from pipelines.tuning.space import ROW, SearchConfig
from vse_core.evaluation.plots import OKABE_ITO, tidy


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
