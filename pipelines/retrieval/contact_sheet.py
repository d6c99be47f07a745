"""Contact sheets: queries with their top results, the right ones marked, as a PNG or as one self-contained HTML page.

A right result carries a green frame and a tick, a wrong one a grey frame and an orange cross, so that the marks can
be told apart without colours. A picture that cannot be read shows as a grey square with its name: a sheet never fails
for one image.
"""

import base64
import bisect
import html
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from pipelines.retrieval.gallery import Gallery
from preprocessing.features.images import ImageError, load_image
from vse_core.evaluation.nearest import top_k

Loader = Callable[[str], Image.Image]

# Okabe-Ito green and vermillion, and neutrals with enough contrast on white.
GREEN, ORANGE = "#009E73", "#D55E00"
INK, MUTED, GREY, PALE = "#1A1A1A", "#555555", "#8A8A8A", "#E9E9E9"

THUMBNAIL = 168  # pixels, both ways
GAP = 14
QUERY_WIDTH = THUMBNAIL + 64
COLUMNS = 5  # thumbnails side by side
CELL = THUMBNAIL + 8  # a thumbnail with its frame
TEXT_WIDTH = COLUMNS * (CELL + GAP) - GAP  # captions are as wide as the thumbnails are together
LINE = 18


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: an image, or a caption.

    Attributes:
        similarity: cosine of the best view, -1 to 1.
        item_id: id of the image or of the caption.
        image_uri: the image to show; None for a caption.
        caption: the caption; of an image one of its own, shown where there is room.
        right: whether it belongs to the query; None where that is not known, as for a query of the user's own.
    """

    similarity: float
    item_id: str
    image_uri: str | None = None
    caption: str | None = None
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One query and its results, best first.

    Attributes:
        hits: the results.
        query_text: the query where it is a text.
        query_image_uri: the query where it is an image.
        note: a short remark under the query, such as the rank of the first right result.
    """

    hits: tuple[Hit, ...]
    query_text: str | None = None
    query_image_uri: str | None = None
    note: str = ""

    @property
    def has_captions(self) -> bool:
        """Whether the results are captions rather than images."""
        return all(hit.image_uri is None for hit in self.hits)


def text_to_image_rows(gallery: Gallery, queries: int = 6, k: int = 5) -> list[SheetRow]:
    """Search the gallery's images with its own captions, spread evenly over the split; the caption's image is right.

    Args:
        gallery: embedded images and captions.
        queries: how many captions to take, one an image.
        k: results a query.
    """
    # The first caption of every image that has one.
    first = {image: index for index, (image, _) in reversed(list(enumerate(gallery.captions)))}
    sample = _spread(len(gallery.records), queries)
    return [text_to_image_row(gallery, first[image], k) for image in sample if image in first]


def text_to_image_row(gallery: Gallery, caption: int, k: int = 5) -> SheetRow:
    """Search the gallery's images with one of its captions; the caption's image is right.

    Args:
        gallery: embedded images and captions.
        caption: its place among the captions.
        k: results.
    """
    image, query = gallery.captions[caption]
    ranked = image_hits(gallery, gallery.texts_CD[caption].unsqueeze(0), len(gallery.records), right=image)
    return SheetRow(tuple(ranked[:k]), query_text=query.text, note=_first_right(ranked))


def image_to_text_rows(gallery: Gallery, queries: int = 6, k: int = 5) -> list[SheetRow]:
    """Search the gallery's captions with its own images, spread evenly over the split; the image's captions are right.

    Args:
        gallery: embedded images and captions.
        queries: how many images to take.
        k: results a query.
    """
    return [image_to_text_row(gallery, image, k) for image in _spread(len(gallery.records), queries)]


def image_to_text_row(gallery: Gallery, image: int, k: int = 5) -> SheetRow:
    """Search the gallery's captions with one of its images; the image's captions are right.

    Args:
        gallery: embedded images and captions.
        image: its place among the images.
        k: results.
    """
    ranked = caption_hits(gallery, gallery.images_BKD[image], len(gallery.captions), right=image)
    uri = gallery.records[image].image_uri
    return SheetRow(tuple(ranked[:k]), query_image_uri=uri, note=_first_right(ranked))


def image_hits(gallery: Gallery, query_VD: Tensor, k: int, right: int | None = None) -> list[Hit]:
    """Find the k images nearest to a query of V views.

    Args:
        gallery: embedded images.
        query_VD: (V, D) unit vectors.
        k: results; all images where there are fewer.
        right: index of the image that is right; None where that is not known.
    """
    similarities, places = top_k(query_VD.unsqueeze(0), gallery.images_BKD, k)
    return as_image_hits(gallery, similarities[0].tolist(), places[0].tolist(), right)


def caption_hits(gallery: Gallery, query_VD: Tensor, k: int, right: int | None = None) -> list[Hit]:
    """Find the k captions nearest to a query of V views.

    Args:
        gallery: embedded captions.
        query_VD: (V, D) unit vectors.
        k: results; all captions where there are fewer.
        right: index of the image whose captions are right; None where that is not known.
    """
    similarities, places = top_k(query_VD.unsqueeze(0), gallery.texts_CD.unsqueeze(1), k)
    return as_caption_hits(gallery, similarities[0].tolist(), places[0].tolist(), right)


def as_image_hits(
    gallery: Gallery, similarities: Iterable[float], places: Iterable[int], right: int | None = None
) -> list[Hit]:
    """Images that were found at these places of the gallery, with what is shown of them."""
    found = []
    for similarity, place in zip(similarities, places, strict=True):
        record = gallery.records[place]
        # The first caption says what the picture is said to show, where the picture itself cannot be seen.
        caption = record.captions[0].text if record.captions else None
        known = None if right is None else place == right
        found.append(Hit(similarity, record.image_id, record.image_uri, caption, known))
    return found


def as_caption_hits(
    gallery: Gallery, similarities: Iterable[float], places: Iterable[int], right: int | None = None
) -> list[Hit]:
    """Captions that were found at these places of the gallery; `right` is the place of their image."""
    found = []
    for similarity, place in zip(similarities, places, strict=True):
        image, caption = gallery.captions[place]
        known = None if right is None else image == right
        found.append(Hit(similarity, caption.caption_id, None, caption.text, known))
    return found


def _first_right(ranked: Sequence[Hit]) -> str:
    """Say at which rank the first right result stands."""
    rank = next((place for place, hit in enumerate(ranked, start=1) if hit.right), None)
    return "no right result" if rank is None else f"first right result at rank {rank} of {len(ranked):,}"


def _spread(total: int, count: int) -> list[int]:
    """Return up to `count` places spread evenly over `total`: a sample that nobody has picked by its results."""
    count = min(total, count)
    return [(2 * place + 1) * total // (2 * count) for place in range(count)]


def contact_sheet_png(title: str, rows: Sequence[SheetRow], load: Loader = load_image) -> Image.Image:
    """Draw the rows under a title.

    Args:
        title: one line.
        rows: queries with their results; images and captions may be mixed.
        load: reads the image of a URI; raises `ImageError` where it cannot.

    Returns:
        The RGB picture.

    Raises:
        ValueError: there is no row.
    """
    if not rows:
        raise ValueError("a contact sheet needs at least one query; got none")
    drawn = [_draw_row(row, load) for row in rows]
    heading = _text_block(title, max(row.width for row in drawn), size=20, bold=True)
    width = max(row.width for row in drawn) + 2 * GAP
    height = heading.height + 2 * GAP + sum(row.height + 2 * GAP for row in drawn)
    sheet = Image.new("RGB", (width, height), "white")
    sheet.paste(heading, (GAP, GAP))
    top = heading.height + 2 * GAP
    for row in drawn:
        ImageDraw.Draw(sheet).line([(GAP, top), (width - GAP, top)], fill=PALE, width=1)
        sheet.paste(row, (GAP, top + GAP))
        top += row.height + 2 * GAP
    return sheet


def contact_sheet_html(title: str, rows: Sequence[SheetRow], load: Loader = load_image) -> str:
    """Write the rows as one HTML page that needs no other file: pictures are inside it, texts are escaped.

    Args:
        title: one line.
        rows: queries with their results; images and captions may be mixed.
        load: reads the image of a URI; raises `ImageError` where it cannot.

    Returns:
        The page.

    Raises:
        ValueError: there is no row.
    """
    if not rows:
        raise ValueError("a contact sheet needs at least one query; got none")
    name = html.escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name}</title>\n'
        f'<meta name="color-scheme" content="light dark">\n<style>{_PAGE_STYLE}{SHEET_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{name}</h1>\n{sheet_rows_html(rows, load)}\n</body>\n</html>\n"
    )


def sheet_rows_html(rows: Sequence[SheetRow], load: Loader = load_image, sharpness: int = 2) -> str:
    """Write the rows as a part of a page, which also needs `SHEET_STYLE`: pictures are inside, texts are escaped.

    Args:
        rows: queries with their results; images and captions may be mixed.
        load: reads the image of a URI; raises `ImageError` where it cannot.
        sharpness: pixels of a picture for each one that it is shown with; the fewer, the smaller the page.
    """
    return "\n".join(_html_row(row, load, sharpness) for row in rows)


def thumbnail(uri: str, size: int, load: Loader = load_image) -> Image.Image:
    """Return the image of a URI in a white square of `size` pixels, or a placeholder that names it."""
    try:
        image = load(uri)
    except ImageError:
        return _placeholder(uri, size)
    fitted = ImageOps.contain(image, (size, size))
    square = Image.new("RGB", (size, size), "white")
    square.paste(fitted, ((size - fitted.width) // 2, (size - fitted.height) // 2))
    return square


def _placeholder(uri: str, size: int) -> Image.Image:
    """Return a grey square that names the image that is not there."""
    square = Image.new("RGB", (size, size), PALE)
    font = _font(size // 13)
    pad = size // 20
    name = _wrapped(Path(uri).name or uri, font, size - 2 * pad)
    text = "\n".join(["cannot be read:", *name][:6])
    # Below the corner that a mark may take.
    ImageDraw.Draw(square).multiline_text((pad, size // 5), text, font=font, fill=INK, spacing=4)
    return square


def _draw_row(row: SheetRow, load: Loader) -> Image.Image:
    """Draw the query on the left and its results on the right."""
    query = _draw_query(row, load)
    results = _draw_captions(row.hits) if row.has_captions else _draw_images(row.hits, load)
    picture = Image.new("RGB", (query.width + 2 * GAP + results.width, max(query.height, results.height)), "white")
    picture.paste(query, (0, 0))
    picture.paste(results, (query.width + 2 * GAP, 0))
    return picture


def _draw_query(row: SheetRow, load: Loader) -> Image.Image:
    """Draw the query, an image or a text, with the note under it."""
    parts = []
    if row.query_image_uri is not None:
        parts.append(thumbnail(row.query_image_uri, THUMBNAIL, load))
    if row.query_text is not None:
        parts.append(_text_block(f"“{row.query_text.strip()}”", QUERY_WIDTH, size=15, bold=True))
    if row.note:
        parts.append(_text_block(row.note, QUERY_WIDTH, size=13, colour=MUTED))
    return _stack(parts, QUERY_WIDTH)


def _draw_images(hits: Sequence[Hit], load: Loader) -> Image.Image:
    """Draw thumbnails in rows, each framed, marked, and labelled with rank, similarity and id."""
    rows = -(-len(hits) // COLUMNS)
    height = CELL + 2 * LINE + 6
    grid = Image.new("RGB", (TEXT_WIDTH, max(1, rows * height)), "white")
    draw = ImageDraw.Draw(grid)
    for place, hit in enumerate(hits):
        x, y = place % COLUMNS * (CELL + GAP), place // COLUMNS * height
        colour, width = _frame(hit.right)
        draw.rectangle([(x, y), (x + CELL - 1, y + CELL - 1)], fill=colour)
        grid.paste(thumbnail(hit.image_uri or hit.item_id, CELL - 2 * width, load), (x + width, y + width))
        _draw_badge(grid, hit.right, (x + CELL - 28, y + 4))
        draw.text((x + 2, y + CELL + 2), f"{place + 1}.  {hit.similarity:.3f}", font=_font(13), fill=INK)
        label_font = _font(12)
        name = _wrapped(hit.item_id, label_font, CELL - 2 - int(label_font.getlength("…")))
        draw.text((x + 2, y + CELL + 2 + LINE), name[0] + ("…" if len(name) > 1 else ""), font=label_font, fill=MUTED)
    return grid


def _draw_captions(hits: Sequence[Hit]) -> Image.Image:
    """Draw ranked captions one under another, each with its mark and similarity."""
    lines = []
    for rank, hit in enumerate(hits, start=1):
        text = _text_block(hit.caption or "", TEXT_WIDTH - 116, size=15, bold=hit.right is True)
        line = Image.new("RGB", (TEXT_WIDTH, max(text.height, 24) + 4), "white")
        draw = ImageDraw.Draw(line)
        draw.text((0, 3), f"{rank}.", font=_font(14), fill=INK)
        draw.text((62, 3), f"{hit.similarity:.3f}", font=_font(14), fill=MUTED)
        _draw_badge(line, hit.right, (32, 0))
        line.paste(text, (116, 2))
        lines.append(line)
    return _stack(lines, TEXT_WIDTH)


def _draw_badge(picture: Image.Image, right: bool | None, corner: tuple[int, int]) -> None:
    """Draw a white tick on green or a white cross on orange, 24 pixels wide; nothing where neither is known."""
    if right is None:
        return
    x, y = corner
    # Drawn at four times the size and shrunk: PIL's own lines are not smooth.
    badge = Image.new("RGBA", (96, 96), (0, 0, 0, 0))
    draw = ImageDraw.Draw(badge)
    draw.ellipse([(2, 2), (93, 93)], fill=GREEN if right else ORANGE, outline="white", width=6)
    if right:
        draw.line([(26, 50), (42, 66), (70, 32)], fill="white", width=12, joint="curve")
    else:
        draw.line([(32, 32), (64, 64)], fill="white", width=12)
        draw.line([(64, 32), (32, 64)], fill="white", width=12)
    small = badge.resize((24, 24), Image.Resampling.LANCZOS)
    picture.paste(small, (x, y), small)


def _frame(right: bool | None) -> tuple[str, int]:
    """Return colour and width in pixels of the frame around a result."""
    return (GREEN, 5) if right else (GREY, 2 if right is False else 1)


def _stack(parts: Sequence[Image.Image], width: int) -> Image.Image:
    """Paste pictures one under another."""
    picture = Image.new("RGB", (width, max(1, sum(part.height + 6 for part in parts))), "white")
    top = 0
    for part in parts:
        picture.paste(part, (0, top))
        top += part.height + 6
    return picture


def _text_block(text: str, width: int, size: int, bold: bool = False, colour: str = INK) -> Image.Image:
    """Draw a text, wrapped to a width in pixels; words longer than a line are cut."""
    font = _font(size, bold)
    lines = _wrapped(text, font, width)
    height = round(size * 1.35)
    block = Image.new("RGB", (width, height * len(lines)), "white")
    for place, line in enumerate(lines):
        ImageDraw.Draw(block).text((0, place * height), line, font=font, fill=colour)
    return block


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break a text into lines of at most `width` pixels, at spaces, and within a word that is wider than a line."""
    lines: list[str] = []
    for word in text.split() or [""]:
        candidate = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(candidate) <= width:
            lines[-1] = candidate
            continue
        lines += _cut(word, font, width)
    return lines


def _cut(word: str, font: ImageFont.FreeTypeFont, width: int) -> Iterator[str]:
    """Cut a word into pieces of at most `width` pixels."""
    while word:
        size = _letters_that_fit(word, font, width)
        yield word[:size]
        word = word[size:]


def _letters_that_fit(word: str, font: ImageFont.FreeTypeFont, width: int) -> int:
    """Return how many letters of a word `width` pixels hold: one at least, found by halving as a word may be long."""
    sizes = range(1, len(word) + 1)
    return max(1, bisect.bisect_right(sizes, width, key=lambda size: math.ceil(font.getlength(word[:size]))))


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans, which matplotlib brings along: the same letters on every machine."""
    wanted = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return ImageFont.truetype(font_manager.findfont(wanted), size)


def _html_row(row: SheetRow, load: Loader, sharpness: int) -> str:
    """Write one query and its results."""
    query = ""
    if row.query_image_uri is not None:
        query += _html_image(row.query_image_uri, "query image", load, sharpness)
    if row.query_text is not None:
        query += f"<p class=text>“{html.escape(row.query_text.strip())}”</p>"
    if row.note:
        query += f"<p class=note>{html.escape(row.note)}</p>"
    hits = "\n".join(_html_hit(rank, hit, load, sharpness) for rank, hit in enumerate(row.hits, start=1))
    kind = "captions" if row.has_captions else "images"
    return f'<section class="row">\n<div class="query">{query}</div>\n<ol class="{kind}">\n{hits}\n</ol>\n</section>'


def _html_hit(rank: int, hit: Hit, load: Loader, sharpness: int) -> str:
    """Write one result with its rank, its similarity and its mark."""
    mark = {
        True: '<span class="mark" role="img" aria-label="right">✓</span>',
        False: '<span class="mark" role="img" aria-label="wrong">✗</span>',
        None: "",
    }[hit.right]
    state = {True: "right", False: "wrong", None: "unjudged"}[hit.right]
    picture = _html_image(hit.image_uri, hit.item_id, load, sharpness) if hit.image_uri is not None else ""
    caption = f'<span class="caption">{html.escape(hit.caption)}</span>' if hit.caption is not None else ""
    figures = f'<span class="rank">{rank}.</span> <span class="similarity">{hit.similarity:.3f}</span>'
    item = f'<span class="id">{html.escape(hit.item_id)}</span>'
    return f'<li class="{state}">{picture}{mark}<span class="label">{figures} {item}</span>{caption}</li>'


def _html_image(uri: str, name: str, load: Loader, sharpness: int) -> str:
    """Write a picture as an `img` element with its bytes inside."""
    data = io.BytesIO()
    thumbnail(uri, sharpness * THUMBNAIL, load).save(data, "JPEG", quality=85)
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{encoded}" alt="{html.escape(name)}" title="{html.escape(uri)}">'


_PAGE_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 24px; }
h1 { font-size: 20px; overflow-wrap: anywhere; }
"""
# Colours that say right and wrong are the same on light and on dark ground.
SHEET_STYLE = f"""
:root {{ --ink: {INK}; --muted: {MUTED}; --line: {PALE}; --ground: #fff; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #ececec; --muted: #b4b4b4; --line: #444; --ground: #161719; }} }}
body {{ color: var(--ink); background: var(--ground); }}
.row {{ display: flex; gap: 24px; align-items: flex-start; border-top: 1px solid var(--line); padding: 16px 0; }}
.row .query {{ flex: 0 0 {QUERY_WIDTH}px; overflow-wrap: anywhere; }}
.row .query .text {{ font-weight: 600; margin: 0 0 6px; }}
.row .note, .row .id, .row .similarity {{ color: var(--muted); font-size: 13px; }}
.row ol {{ list-style: none; margin: 0; padding: 0; min-width: 0; }}
.row ol.images {{ display: flex; flex-wrap: wrap; gap: 14px; }}
.row ol.images li {{ position: relative; width: {THUMBNAIL + 8}px; overflow-wrap: anywhere; }}
.row img {{ display: block; width: {THUMBNAIL}px; height: {THUMBNAIL}px; box-sizing: border-box; }}
.row ol.images img {{ width: {THUMBNAIL + 8}px; height: {THUMBNAIL + 8}px; border: 1px solid {GREY}; }}
.row ol.images .caption {{ display: block; font-size: 13px; color: var(--muted); }}
.row ol.images .right img {{ border: 5px solid {GREEN}; }}
.row ol.images .wrong img {{ border-width: 2px; }}
.row .mark {{ display: inline-block; flex: none; width: 24px; height: 24px; border-radius: 50%; text-align: center; }}
.row .mark {{ color: #fff; font: bold 15px/24px sans-serif; }}
.row ol.images .mark {{ position: absolute; top: 8px; right: 8px; box-shadow: 0 0 0 2px #fff; }}
.row .right .mark {{ background: {GREEN}; }}
.row .wrong .mark {{ background: {ORANGE}; }}
.row ol.captions li {{ display: flex; gap: 10px; align-items: baseline; padding: 3px 0; }}
.row ol.captions .label {{ flex: 0 0 auto; order: -1; min-width: 190px; }}
.row ol.captions .caption {{ flex: 1 1 auto; overflow-wrap: anywhere; }}
.row ol.captions .right .caption {{ font-weight: 600; }}
"""
