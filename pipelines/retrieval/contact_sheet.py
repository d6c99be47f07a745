"""Contact sheets: queries with their hits, relevant ones marked, as one HTML page that needs no other file.

A relevant result carries a green frame and a tick, an irrelevant one a grey frame and an orange cross, so that they
can be told apart without colours. An image that cannot be read is replaced by its name.
"""

from collections.abc import Sequence
from functools import partial

from markupsafe import Markup

from pipelines.retrieval.hits import SheetRow
from pipelines.templates.render import data_uri, render
from preprocessing.features.images import ImageError, fitted, image_bytes, load_image

_THUMBNAIL = 176  # pixels of the longer side


def contact_sheet(title: str, rows: Sequence[SheetRow]) -> bytes:
    """Return the rows as a page in UTF-8; of the name of a file that is not UTF-8 the odd bytes are spelt out."""
    page = render("sheet.html", title=title, rows=sheet_rows_html(rows, 2 * _THUMBNAIL))
    return page.encode(errors="backslashreplace")


def sheet_rows_html(rows: Sequence[SheetRow], pixels: int = _THUMBNAIL) -> Markup:
    """Return the rows as a part of a page based on `base.html`, with images whose longer side has `pixels`."""
    return render("sheet_rows.html", rows=rows, thumbnail=partial(_thumbnail_uri, pixels=pixels))


def _thumbnail_uri(uri: str, pixels: int) -> str | None:
    try:
        image = fitted(load_image(uri), pixels)
    except ImageError:
        return None
    return data_uri(image_bytes(image, "JPEG", quality=85), "jpeg")
