"""Hits: the images or captions of a gallery that a query finds.

V views of a query, D embedding.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from pipelines.retrieval.gallery import Gallery
from vse_core.evaluation.nearest import top_k


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: an image or a caption, with the cosine of the best view.

    `image_uri` is None for a caption; `caption` of an image is its first one, which tells what an unreadable image
    shows; `relevant` is None where that is not known, as for a user's own query.
    """

    similarity: float
    item_id: str
    image_uri: str | None = None
    caption: str | None = None
    relevant: bool | None = None


def image_hits(gallery: Gallery, query_VD: Tensor, k: int, relevant_image: int | None = None) -> list[Hit]:
    """Find the k images (or all) nearest to a query of V unit vectors; the image of this index is relevant."""
    similarities, indices = top_k(query_VD.unsqueeze(0), gallery.images_BKD, k)
    return as_image_hits(gallery, similarities[0].tolist(), indices[0].tolist(), relevant_image)


def caption_hits(gallery: Gallery, query_VD: Tensor, k: int, relevant_image: int | None = None) -> list[Hit]:
    """Find the k captions (or all) nearest to a query of V unit vectors; those of `relevant_image` are relevant."""
    similarities, indices = top_k(query_VD.unsqueeze(0), gallery.texts_CD.unsqueeze(1), k)
    return as_caption_hits(gallery, similarities[0].tolist(), indices[0].tolist(), relevant_image)


def as_image_hits(
    gallery: Gallery, similarities: Iterable[float], indices: Iterable[int], relevant_image: int | None = None
) -> list[Hit]:
    """Return hits for images of the gallery, given by their indices."""
    hits = []
    for similarity, index in zip(similarities, indices, strict=True):
        record = gallery.records[index]
        caption = record.captions[0].text if record.captions else None
        relevant = None if relevant_image is None else index == relevant_image
        hits.append(Hit(similarity, record.image_id, record.image_uri, caption, relevant))
    return hits


def as_caption_hits(
    gallery: Gallery, similarities: Iterable[float], indices: Iterable[int], relevant_image: int | None = None
) -> list[Hit]:
    """Return hits for captions of the gallery, given by their indices; those of `relevant_image` are relevant."""
    hits = []
    for similarity, index in zip(similarities, indices, strict=True):
        image, caption = gallery.captions[index]
        relevant = None if relevant_image is None else image == relevant_image
        hits.append(Hit(similarity, caption.caption_id, None, caption.text, relevant))
    return hits
