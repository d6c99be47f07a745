"""Drawings of the regions of an image that match a word or phrase (UniVSE, figure 6)."""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor, nn

from vse_core.evaluation.plots import GREY

# Q queries, N regions or grid cells of one image, D embedding; H x W pixels.

# The steps of inferno rise in lightness, so the map reads the same under every colour deficiency and in grey.
_COLOURS = "inferno"
# Of no heat and of the most: the photograph stays visible if nothing is found.
_OPACITY = (0.3, 0.8)
_MOST_COLUMNS = 5
_PANEL_WIDTH = 3.1
_LINE_LENGTH = 36

Regions = tuple[int, int] | np.ndarray


def plot_relevance(
    photograph_HW3: np.ndarray,
    queries: Sequence[str],
    relevance_QN: Tensor,
    regions: Regions,
    similarities: Sequence[float] | None = None,
) -> Figure:
    """Show a photograph, and next to it the relevance map of every query laid over it, five to a row at most.

    All maps share one scale, in multiples of an even spread: 1 means that a place is as relevant as any, so a query
    that is nowhere in particular looks flat and not like a find.

    Args:
        photograph_HW3: RGB, 0 to 255.
        queries: the text of each query, its panel's title.
        relevance_QN: of `vse_core.evaluation.unified.relevance`.
        regions: (rows, columns) of a grid whose cells divide the photograph, between whose centres the map is
            interpolated; or boxes (N, 4) of left, top, right and bottom in pixels: a pixel shows the most relevant of
            the boxes over it, 0 outside of them, and the query's best box is outlined.
        similarities: of each query with the complete image, shown under its text if given.
    """
    titles = [textwrap.fill(f"“{text}”", _LINE_LENGTH) for text in queries]
    if similarities is not None:
        titles = [f"{title}\nsimilarity {score:.3f}" for title, score in zip(titles, similarities, strict=True)]
    lines = 1 + max(title.count("\n") for title in titles)
    figure, panels = _panels(len(queries) + 1, photograph_HW3.shape[:2], lines)
    panels[0].imshow(photograph_HW3)
    panels[0].set_title("photograph", fontsize=10, color=GREY)
    for axes, title in zip(panels[1:], titles, strict=True):
        axes.set_title(title, fontsize=10)
    maps = [(axes, photograph_HW3, row_N, regions) for axes, row_N in zip(panels[1:], relevance_QN, strict=True)]
    _draw_maps(figure, panels, maps)
    return figure


def plot_retrieved(
    query: str,
    photographs: Sequence[np.ndarray],
    relevance_SN: Sequence[Tensor],
    regions: Sequence[Regions],
    similarities: Sequence[float],
) -> Figure:
    """Show the photographs that a query finds, and below each where in it the query is found (UniVSE, figure 6).

    All maps share one scale, and regions are as in `plot_relevance`. Photographs are (H, W, 3) RGB, 0 to 255, the best
    first; `relevance_SN` is the query's row of `relevance` for each, and `similarities` are with each as a whole.
    """
    height = 2 * _PANEL_WIDTH * max(min(each.shape[0] / each.shape[1], 1.6) for each in photographs) + 0.9
    figure = Figure(figsize=(len(photographs) * _PANEL_WIDTH + 0.9, height), layout="compressed")
    above, below = figure.subplots(2, len(photographs), squeeze=False)
    for number, (axes, photograph_HW3) in enumerate(zip(above, photographs, strict=True)):
        axes.imshow(photograph_HW3)
        axes.set_title(f"{number + 1}. similarity {similarities[number]:.3f}", fontsize=10)
    for axes in (*above, *below):
        axes.set_axis_off()
    figure.suptitle(textwrap.fill(f"“{query}”", 2 * _LINE_LENGTH), fontsize=12)
    _draw_maps(figure, [*above, *below], list(zip(below, photographs, relevance_SN, regions, strict=True)))
    return figure


def _draw_maps(
    figure: Figure, panels: Sequence[Axes], maps: Sequence[tuple[Axes, np.ndarray, Tensor, Regions]]
) -> None:
    """Lay each map over its photograph, which turns grey so that its own colours are not taken for heat; one scale."""
    heats = [_heat(relevance_N, regions, photograph.shape[:2]) for _, photograph, relevance_N, regions in maps]
    scale = Normalize(0.0, max(float(heat_HW.max()) for heat_HW in heats))
    low, high = _OPACITY
    for (axes, photograph_HW3, relevance_N, regions), heat_HW in zip(maps, heats, strict=True):
        axes.imshow(photograph_HW3 @ np.array([0.299, 0.587, 0.114]), cmap="gray", vmin=0, vmax=255)
        axes.imshow(heat_HW, cmap=_COLOURS, norm=scale, alpha=low + (high - low) * np.asarray(scale(heat_HW)))
        if not isinstance(regions, tuple):
            _outline(axes, regions[int(relevance_N.argmax())])
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=panels, shrink=0.85, pad=0.015, aspect=25)
    bar.set_label("relevance (1 = evenly spread)", fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _heat(relevance_N: Tensor, regions: Regions, size: tuple[int, int]) -> np.ndarray:
    """Heat (H, W): interpolated between the centres of a grid's cells, or the highest of the boxes over a pixel."""
    even_N = relevance_N.double() * len(relevance_N)
    if isinstance(regions, tuple):
        cells_11hw = even_N.reshape(1, 1, *regions)
        return np.asarray(nn.functional.interpolate(cells_11hw, size=size, mode="bilinear", align_corners=False)[0, 0])
    heat_HW = np.zeros(size)
    for value, (left, top, right, bottom) in zip(even_N.numpy(), regions, strict=True):
        rows, columns = _pixels(top, bottom), _pixels(left, right)
        heat_HW[rows, columns] = np.maximum(heat_HW[rows, columns], value)
    return heat_HW


def _pixels(low: float, high: float) -> slice:
    """The pixels of one axis whose centres lie between two edges."""
    return slice(max(0, int(np.ceil(low - 0.5))), max(0, int(np.ceil(high - 0.5))))


def _panels(count: int, size: tuple[int, int], title_lines: int) -> tuple[Figure, list[Axes]]:
    rows = math.ceil(count / _MOST_COLUMNS)
    columns = math.ceil(count / rows)
    height = _PANEL_WIDTH * min(size[0] / size[1], 1.6) + 0.25 + 0.17 * title_lines
    figure = Figure(figsize=(columns * _PANEL_WIDTH + 0.9, rows * height), layout="compressed")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def _outline(axes: Axes, box_4: np.ndarray) -> None:
    left, top, right, bottom = (float(edge) for edge in box_4)
    box = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor="white", linewidth=1.6)
    box.set_path_effects([withStroke(linewidth=3.2, foreground="black")])
    axes.add_patch(box)
