"""Rows of a contact sheet: a query with its hits, for the queries that a gallery itself holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.hits import Hit, caption_hits, image_hits


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


def text_to_image_rows(gallery: Gallery, queries: int = 6, k: int = 5) -> list[SheetRow]:
    """Search the gallery's images with captions of its own, one an image, spread evenly over the split."""
    first = {image: index for index, (image, _) in reversed(list(enumerate(gallery.captions)))}
    sample = _spread(len(gallery.records), queries)
    return [text_to_image_row(gallery, first[image], k) for image in sample if image in first]


def text_to_image_row(gallery: Gallery, caption: int, k: int = 5) -> SheetRow:
    """Search the gallery's images with one of its captions, given by its index; the caption's image is relevant."""
    image, query = gallery.captions[caption]
    ranked = image_hits(gallery, gallery.texts_CD[caption].unsqueeze(0), len(gallery.records), image)
    return SheetRow(tuple(ranked[:k]), query_text=query.text, note=_first_relevant(ranked))


def image_to_text_rows(gallery: Gallery, queries: int = 6, k: int = 5) -> list[SheetRow]:
    """Search the gallery's captions with images of its own, spread evenly over the split."""
    return [image_to_text_row(gallery, image, k) for image in _spread(len(gallery.records), queries)]


def image_to_text_row(gallery: Gallery, image: int, k: int = 5) -> SheetRow:
    """Search the gallery's captions with one of its images, given by its index; the image's captions are relevant."""
    ranked = caption_hits(gallery, gallery.images_BKD[image], len(gallery.captions), image)
    uri = gallery.records[image].image_uri
    return SheetRow(tuple(ranked[:k]), query_image_uri=uri, note=_first_relevant(ranked))


def _first_relevant(ranked: Sequence[Hit]) -> str:
    rank = next((rank for rank, hit in enumerate(ranked, start=1) if hit.relevant), None)
    return "no relevant result" if rank is None else f"first relevant result at rank {rank} of {len(ranked):,}"


def _spread(total: int, count: int) -> list[int]:
    """Return up to `count` indices spread evenly over `total`: a sample that nobody has picked by its results."""
    count = min(total, count)
    return [(2 * place + 1) * total // (2 * count) for place in range(count)]
