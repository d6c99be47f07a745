"""RSUM of a gallery with captions, hubs corrected if it has biases: by full vectors, and as its index keeps them."""

from pipelines.retrieval.faiss_index import GalleryIndex
from pipelines.retrieval.gallery import Gallery
from vse_core.evaluation.hubs import corrected
from vse_core.evaluation.recall import evaluate_retrieval


def gallery_rsum(gallery: Gallery) -> float:
    """Return the RSUM by the full vectors."""
    pair = gallery.images_BKD, gallery.texts_CD
    pair = pair if gallery.biases is None else corrected(*pair, *gallery.biases)
    return evaluate_retrieval(*pair, _counts(gallery)).rsum


def index_rsum(index: GalleryIndex, gallery: Gallery) -> float:
    """Return the RSUM if every item is compared as an index holds it, and every query as it is compared with items."""
    captions = index.images.kept_queries(gallery.texts_CD.unsqueeze(1))[:, 0]
    to_images = evaluate_retrieval(index.images.kept_items(), captions, _counts(gallery))
    images = index.captions.kept_queries(gallery.images_BKD)
    to_captions = evaluate_retrieval(images, index.captions.kept_items()[:, 0], _counts(gallery))
    return to_images.text_to_image.recall_sum + to_captions.image_to_text.recall_sum


def _counts(gallery: Gallery) -> list[int]:
    return [len(record.captions) for record in gallery.records]
