"""Figures of a model: pooling weights, views, captions, retrievals and relevance maps.

B images, C captions, K views, D embedding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluator import pooling_figures
from pipelines.inference.embedder import ImageRegions, QueryError
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.retrieval.gallery import Gallery, with_photographs
from pipelines.retrieval.hits import contact_sheet, own_queries
from pipelines.runtime.stage import StageError
from pipelines.schema.weights import PRETRAINED
from preprocessing.features.images import load_image
from vse_core.digests import first_line
from vse_core.evaluation.nearest import top_k
from vse_core.evaluation.relevance_plots import plot_relevance, plot_retrieved
from vse_core.evaluation.unified import relevance
from vse_core.evaluation.views import caption_similarities, chosen_views, plot_caption_similarity
from vse_core.hub import require_on_hub

_IMAGES = 4
_RETRIEVED = 3
_QUERIES = ("black dog", "white dog", "player swing bat")


def gpo_coefficients(registered: RegisteredModel) -> dict[str, Figure]:
    """Draw the pooling weights of GPO for sets of several sizes, one figure a view (VSE-infinity, figure 5)."""
    uri = registered.gallery.records[0].image_uri
    try:
        size = registered.embedder.set_size(uri)
    except QueryError as error:
        raise _unreadable(registered, uri, error) from error
    figures = pooling_figures(registered.embedder.model, size)
    if not figures:
        raise StageError(f"{registered.name} does not pool by GPO: it has no such weights")
    return {f"{name}.png": figure for name, figure in figures.items()}


def caption_similarity(registered: RegisteredModel, encoder: str | None = None) -> dict[str, Figure]:
    """Draw the similarities of the captions of an image (MV-VSE, figure 2).

    The captions' embeddings are the model's own, or those of a sentence encoder, as the paper takes Sentence-BERT's.
    """
    gallery = registered.gallery
    texts_CD = gallery.texts_CD if encoder is None else _sentence_vectors(encoder, gallery)
    same_P, other_P = caption_similarities(texts_CD, image_of(gallery))
    if not len(same_P):
        raise StageError(f"{registered.name}: no image of its gallery has two captions to compare")
    title = f"Captions of {gallery.records[0].split}, as {encoder or registered.name} embeds them"
    return {"caption_similarity.png": plot_caption_similarity(same_P, other_P, title)}


def _sentence_vectors(encoder: str, gallery: Gallery) -> Tensor:
    """Embed a gallery's captions with a model of sentence-transformers: unit vectors (C, D)."""
    from sentence_transformers import SentenceTransformer  # takes seconds, and is in an extra

    weights = encoder.removeprefix(PRETRAINED)
    try:
        require_on_hub(weights)
        sentences = SentenceTransformer(weights, device="cpu")
    except (OSError, ValueError) as error:
        raise StageError(f"--encoder {encoder}: {first_line(error)}") from error
    texts = [caption.text for _, caption in gallery.captions]
    options = {"normalize_embeddings": True, "convert_to_tensor": True, "show_progress_bar": True}
    texts_CD: Tensor = sentences.encode(texts, **options)
    return texts_CD


def view_attention(registered: RegisteredModel) -> dict[str, Figure]:
    """Draw where two views of an image look, each with a caption that chooses it (MV-VSE, figure 5).

    The images are evenly spread over those whose captions choose different views.
    Differs from the paper: the similarities of a view with the regions go through UniVSE's softmax, so that maps share
    one scale.
    """
    gallery = registered.gallery
    if gallery.images_BKD.shape[1] < 2:
        raise StageError(f"{registered.name} has one view of each image: there are no two to compare")
    images_C = image_of(gallery)
    chosen_C = chosen_views(gallery.images_BKD, gallery.texts_CD, images_C)
    pairs = differing_pairs(images_C.tolist(), chosen_C.tolist())
    if not pairs:
        raise StageError(f"{registered.name}: the captions of each image all choose the same view")
    figures = {}
    for number, captions in enumerate(pairs[:: -(-len(pairs) // _IMAGES)], start=1):
        image, _ = gallery.captions[captions[0]]
        uri = gallery.records[image].image_uri
        regions = _regions(registered, uri)
        chosen = [(int(chosen_C[caption]), caption) for caption in captions]
        maps = [relevance(regions.image_KD[[view]], regions.of_view(view)) for view, _ in chosen]
        titles = [f"view {view + 1}: {gallery.captions[caption][1].text}" for view, caption in chosen]
        similarities = [float(regions.image_KD[view] @ gallery.texts_CD[caption]) for view, caption in chosen]
        figures[f"view_attention_{number}.png"] = plot_relevance(
            np.asarray(load_image(uri)), titles, torch.cat(maps), regions.places, similarities
        )
    return figures


def differing_pairs(images: Sequence[int], views: Sequence[int]) -> list[tuple[int, int]]:
    """Return, for images whose captions choose different views, the first caption and the first with another view."""
    pairs: dict[int, tuple[int, int]] = {}
    first: dict[int, int] = {}
    for caption, (image, view) in enumerate(zip(images, views, strict=True)):
        start = first.setdefault(image, caption)
        if image not in pairs and view != views[start]:
            pairs[image] = (start, caption)
    return list(pairs.values())


def top_5(registered: RegisteredModel, config: PipelineConfig) -> dict[str, bytes]:
    """Draw the first five images of captions and captions of images, relevant ones marked (VSE+2AD, figure 4)."""
    gallery = with_photographs(registered.gallery, config.dataset)
    images, captions = own_queries(gallery, "images"), own_queries(gallery, "captions")
    return {
        "top_5_images.html": contact_sheet(f"Captions and their nearest images: {registered.name}", images),
        "top_5_captions.html": contact_sheet(f"Images and their nearest captions: {registered.name}", captions),
    }


def relevance_maps(registered: RegisteredModel, queries: Sequence[str] = ()) -> dict[str, Figure]:
    """Draw what queries find, by default the paper's, with relevance maps, one figure a query (UniVSE, figure 6)."""
    queries = queries or _QUERIES
    try:
        queries_QD = registered.embedder.embed_texts(queries)
    except QueryError as error:
        raise StageError(f"the query {queries[error.position]!r} cannot be embedded: {error.reason}") from error
    numbered = enumerate(zip(queries, queries_QD, strict=True), start=1)
    return {f"relevance_{number}.png": _retrieved(registered, *query) for number, query in numbered}


def _retrieved(registered: RegisteredModel, query: str, query_D: Tensor) -> Figure:
    gallery = registered.gallery
    similarities_1S, images_1S = top_k(query_D.reshape(1, 1, -1), gallery.images_BKD, _RETRIEVED)
    uris = [gallery.records[image].image_uri for image in images_1S[0].tolist()]
    found = [_regions(registered, uri) for uri in uris]
    nearest = [int((regions.image_KD @ query_D).argmax()) for regions in found]
    maps = [
        relevance(query_D.unsqueeze(0), regions.of_view(view))[0] for regions, view in zip(found, nearest, strict=True)
    ]
    photographs = [np.asarray(load_image(uri)) for uri in uris]
    return plot_retrieved(query, photographs, maps, [each.places for each in found], similarities_1S[0].tolist())


def _regions(registered: RegisteredModel, uri: str) -> ImageRegions:
    try:
        return registered.embedder.embed_with_regions(uri)
    except QueryError as error:
        raise _unreadable(registered, uri, error) from error
    except ValueError as error:
        raise StageError(f"{registered.name}: {error}") from error


def _unreadable(registered: RegisteredModel, uri: str, error: QueryError) -> StageError:
    return StageError(f"{registered.name}: the image {uri} of its gallery: {error.reason}")


def image_of(gallery: Gallery) -> Tensor:
    """Return the image of each caption (C,)."""
    return torch.tensor([image for image, _ in gallery.captions])
