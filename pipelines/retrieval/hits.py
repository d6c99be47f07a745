"""Hits: the images or captions of a gallery that a query finds; contact sheets of queries with their hits.

A contact sheet is one HTML page that needs no other file. A relevant result carries a green frame and a tick, an
irrelevant one a grey frame and an orange cross, so that they can be told apart without colours. An image that cannot be
read is replaced by its name.

V views of a query, D embedding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from markupsafe import Markup

from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.options import Target
from pipelines.templates.render import data_uri, render
from preprocessing.features.images import ImageError, fitted, image_bytes, load_image
from preprocessing.storage.base import StorageError
from vse_core.evaluation.nearest import top_k

_THUMBNAIL = 176  # pixels of the longer side


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: an image or a caption, with the cosine of the best view.

    `confidence` is the probability that it is relevant, None if the model is not calibrated for such a search.
    `image_uri` is None for a caption; `caption` of an image is its first one, which tells what an unreadable image
    shows; `relevant` is None if that is not known, as for a user's own query. `columns` are those of the image's table.
    """

    similarity: float
    item_id: str
    image_uri: str | None = None
    caption: str | None = None
    relevant: bool | None = None
    confidence: float | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One query, a text or an image, and its hits, best first; `note` is a remark below the query."""

    hits: tuple[Hit, ...]
    query_text: str | None = None
    query_image_uri: str | None = None
    note: str = ""

    @property
    def has_captions(self) -> bool:
        """True if the results are captions rather than images."""
        return all(hit.image_uri is None for hit in self.hits)


def as_hits(
    gallery: Gallery,
    target: Target,
    similarities: Iterable[float],
    indices: Iterable[int],
    relevant_image: int | None = None,
) -> list[Hit]:
    """Return hits for images or captions of the gallery, given by their indices.

    The image with the index `relevant_image` and its captions are relevant.
    """
    hits = []
    for similarity, index in zip(similarities, indices, strict=True):
        image, caption = (index, None) if target == "images" else gallery.captions[index]
        relevant = None if relevant_image is None else image == relevant_image
        columns = gallery.columns_of(image)
        if caption is None:
            record = gallery.records[image]
            first = record.captions[0].text if record.captions else None
            hits.append(Hit(similarity, record.image_id, record.image_uri, first, relevant, columns=columns))
        else:
            hits.append(Hit(similarity, caption.caption_id, None, caption.text, relevant, columns=columns))
    return hits


def own_query(gallery: Gallery, target: Target, query: int, k: int = 5) -> SheetRow:
    """Search images with a caption of the gallery, or captions with an image of it, given by its index."""
    if target == "images":
        image, caption = gallery.captions[query]
        text, uri, query_VD, items_BKD = caption.text, None, gallery.texts_CD[[query]], gallery.images_BKD
    else:
        image, text, uri = query, None, gallery.records[query].image_uri
        query_VD, items_BKD = gallery.images_BKD[query], gallery.texts_CD.unsqueeze(1)
    similarities, indices = top_k(query_VD.unsqueeze(0), items_BKD, len(items_BKD))
    hits = as_hits(gallery, target, similarities[0].tolist(), indices[0].tolist(), image)
    rank = next((rank for rank, hit in enumerate(hits, start=1) if hit.relevant), None)
    note = "no relevant result" if rank is None else f"first relevant result at rank {rank} of {len(hits):,}"
    return SheetRow(tuple(hits[:k]), text, uri, note)


def own_queries(gallery: Gallery, target: Target, queries: int = 6, k: int = 5) -> list[SheetRow]:
    """Search with one caption of each of some images of the gallery, or with these images, evenly spread."""
    first_caption = {image: index for index, (image, _) in reversed(list(enumerate(gallery.captions)))}
    total, count = len(gallery.records), min(len(gallery.records), queries)
    images = [(2 * number + 1) * total // (2 * count) for number in range(count)]
    if target == "captions":
        return [own_query(gallery, target, image, k) for image in images]
    return [own_query(gallery, target, first_caption[image], k) for image in images if image in first_caption]


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
    except (ImageError, StorageError):
        return None
    return data_uri(image_bytes(image, "JPEG", quality=85), "jpeg")
