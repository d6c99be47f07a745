"""Contact sheets: queries with their hits, relevant ones marked, as one self-contained HTML page or as a PNG image.

A relevant result carries a green frame and a tick, an irrelevant one a grey frame and an orange cross, so that they
can be told apart without colours. An image that cannot be read is replaced by its name.
"""

import textwrap
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from pipelines.retrieval.hits import Hit
from pipelines.retrieval.sheet_rows import SheetRow
from pipelines.templates.render import data_uri, render
from preprocessing.features.images import ImageError, fitted, image_bytes, load_image

# Okabe-Ito green and vermillion, and neutrals with enough contrast on white.
GREEN, ORANGE = "#009E73", "#D55E00"
INK, MUTED, GREY, PALE = "#1A1A1A", "#555555", "#8A8A8A", "#E9E9E9"
_MARKS = {True: (GREEN, "✓"), False: (ORANGE, "✗")}

# Pixels.
THUMBNAIL = 176
GAP = 14
QUERY_WIDTH = 232
COLUMNS = 5
RESULTS_LEFT = QUERY_WIDTH + 3 * GAP
TEXT_WIDTH = COLUMNS * (THUMBNAIL + GAP) - GAP
CAPTION_LEFT = 116
LINE = 20
_DPI = 100


def contact_sheet_html(title: str, rows: Sequence[SheetRow]) -> str:
    """Return the rows, at least one, as one HTML page that needs no other file."""
    return render("sheet.html", title=title, rows=sheet_rows_html(_at_least_one(rows)))


def sheet_rows_html(rows: Sequence[SheetRow], pixels: int = 2 * THUMBNAIL) -> Markup:
    """Return the rows as a part of a page based on `base.html`, with images whose longer side has `pixels`."""
    return render("sheet_rows.html", rows=rows, thumbnail=partial(_thumbnail_uri, pixels=pixels))


def contact_sheet_png(title: str, rows: Sequence[SheetRow]) -> Image.Image:
    """Draw the rows, at least one, under a title."""
    heights = [_row_height(row) for row in _at_least_one(rows)]
    headings = _wrapped(title, RESULTS_LEFT + TEXT_WIDTH, 20)
    width, top = RESULTS_LEFT + TEXT_WIDTH + GAP, len(headings) * 28 + GAP
    height = top + sum(heights)
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    _write(axes, GAP, GAP, "\n".join(headings), 20, weight="bold")
    for row, row_height in zip(rows, heights, strict=True):
        axes.hlines(top, GAP, width - GAP, color=PALE)
        _draw_query(axes, row, top + GAP)
        (_draw_captions if row.has_captions else _draw_images)(axes, row.hits, top + GAP)
        top += row_height
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # of scripts that DejaVu Sans does not have
        canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _at_least_one(rows: Sequence[SheetRow]) -> Sequence[SheetRow]:
    if not rows:
        raise ValueError("a contact sheet needs at least one query; got none")
    return rows


def _thumbnail_uri(uri: str, pixels: int) -> str | None:
    if (image := _thumbnail(uri, pixels)) is None:
        return None
    return data_uri(image_bytes(image, "JPEG", quality=85), "jpeg")


def _thumbnail(uri: str, pixels: int) -> Image.Image | None:
    try:
        return fitted(load_image(uri), pixels)
    except ImageError:
        return None


def _row_height(row: SheetRow) -> int:
    query = (THUMBNAIL + GAP) * (row.query_image_uri is not None)
    query += LINE * (len(_query_lines(row)) + len(_wrapped(row.note, QUERY_WIDTH, 13)))
    if row.has_captions:
        results = sum(LINE * len(_caption_lines(hit)) + 6 for hit in row.hits)
    else:
        results = -(-len(row.hits) // COLUMNS) * (THUMBNAIL + 3 * LINE)
    return max(query, results) + 2 * GAP


def _query_lines(row: SheetRow) -> list[str]:
    return [] if row.query_text is None else _wrapped(f"“{row.query_text.strip()}”", QUERY_WIDTH, 15)


def _caption_lines(hit: Hit) -> list[str]:
    return _wrapped(hit.caption or "", TEXT_WIDTH - CAPTION_LEFT, 15) or [""]


def _draw_query(axes: Axes, row: SheetRow, top: int) -> None:
    if row.query_image_uri is not None:
        _draw_image(axes, GAP, top, row.query_image_uri)
        top += THUMBNAIL + GAP
    lines = _query_lines(row)
    _write(axes, GAP, top, "\n".join(lines), 15, weight="bold")
    _write(axes, GAP, top + LINE * len(lines), "\n".join(_wrapped(row.note, QUERY_WIDTH, 13)), 13, color=MUTED)


def _draw_images(axes: Axes, hits: Sequence[Hit], top: int) -> None:
    for place, hit in enumerate(hits):
        x = RESULTS_LEFT + place % COLUMNS * (THUMBNAIL + GAP)
        y = top + place // COLUMNS * (THUMBNAIL + 3 * LINE)
        _draw_image(axes, x, y, hit.image_uri or hit.item_id)
        colour, width = (GREEN, 5) if hit.relevant else (GREY, 1.5)
        axes.add_patch(Rectangle((x, y), THUMBNAIL, THUMBNAIL, fill=False, edgecolor=colour, linewidth=width))
        _draw_mark(axes, x + THUMBNAIL - 18, y + 18, hit.relevant)
        _write(axes, x, y + THUMBNAIL + 6, f"{place + 1}.  {hit.similarity:.3f}", 13)
        name = hit.item_id if len(hit.item_id) <= 22 else f"{hit.item_id[:21]}…"
        _write(axes, x, y + THUMBNAIL + 6 + LINE, name, 12, color=MUTED)


def _draw_captions(axes: Axes, hits: Sequence[Hit], top: int) -> None:
    for rank, hit in enumerate(hits, start=1):
        lines = _caption_lines(hit)
        _write(axes, RESULTS_LEFT, top, f"{rank}.", 14)
        _draw_mark(axes, RESULTS_LEFT + 44, top + 9, hit.relevant)
        _write(axes, RESULTS_LEFT + 66, top, f"{hit.similarity:.3f}", 14, color=MUTED)
        weight = "bold" if hit.relevant else "normal"
        _write(axes, RESULTS_LEFT + CAPTION_LEFT, top, "\n".join(lines), 15, weight=weight)
        top += LINE * len(lines) + 6


def _draw_image(axes: Axes, x: int, y: int, uri: str) -> None:
    """Draw an image in a square, or a grey square with the name of an image that cannot be read."""
    image = _thumbnail(uri, THUMBNAIL)
    if image is None:
        axes.add_patch(Rectangle((x, y), THUMBNAIL, THUMBNAIL, color=PALE))
        name = _wrapped(uri.rpartition("/")[2] or uri, THUMBNAIL - 20, 13)[:5]
        _write(axes, x + 10, y + 40, "\n".join(["cannot be read:", *name]), 13)
        return
    left, upper = x + (THUMBNAIL - image.width) / 2, y + (THUMBNAIL - image.height) / 2
    axes.imshow(image, extent=(left, left + image.width, upper + image.height, upper), aspect="auto")


def _draw_mark(axes: Axes, x: int, y: int, relevant: bool | None) -> None:
    """Draw a white tick on green or a white cross on orange; nothing where relevance is not known."""
    if relevant is not None:
        colour, mark = _MARKS[relevant]
        axes.plot(x, y, "o", markersize=17, color=colour, markeredgecolor="white")
        _write(axes, x, y, mark, 14, color="white", horizontalalignment="center", verticalalignment="center_baseline")


def _write(axes: Axes, x: float, y: float, text: str, pixels: int, **style: Any) -> None:
    """Write a text whose letters have a size in pixels, from its upper left corner where `style` does not say else."""
    style = {"color": INK, "verticalalignment": "top", "family": "DejaVu Sans", **style}
    size = pixels * 72 / _DPI
    axes.text(x, y, text, fontsize=size, linespacing=LINE / pixels, parse_math=False, **style)


def _wrapped(text: str, width: int, pixels: int) -> list[str]:
    return textwrap.wrap(text, max(1, int(width / (0.68 * pixels))))
