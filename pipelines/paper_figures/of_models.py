"""Figures of what a model has learned: pooling weights, views, captions, retrievals and maps of relevance.

B images, C captions, K views, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pipelines.evaluation.evaluator import pooling_figures
from pipelines.inference.embedder import QueryError
from pipelines.paper_figures.exhibit import Exhibit
from pipelines.retrieval.contact_sheet import contact_sheet_png
from pipelines.retrieval.sheet_rows import image_to_text_rows, text_to_image_rows
from pipelines.runtime.stage import StageError
from preprocessing.features.images import load_image
from vse_core.evaluation.intra_class import caption_similarities, plot_caption_similarity
from vse_core.evaluation.nearest import top_k
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.evaluation.relevance import plot_relevance, plot_retrieved, relevance
from vse_core.evaluation.views import ViewSummary, chosen_views, plot_view_diversity, view_similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image
    from torch import Tensor

    from pipelines.inference.embedder import ImageRegions
    from pipelines.retrieval.gallery import Gallery

_PICTURES = 4
_RETRIEVED = 3


def gpo_coefficients(exhibit: Exhibit) -> dict[str, Figure]:
    """The pooling weights of GPO for sets of several sizes, a figure for each view (VSE-infinity, figure 5).

    Raises:
        StageError: the model does not pool by GPO.
    """
    model = exhibit.embedder.model
    size = len(_regions(exhibit, exhibit.gallery.records[0].image_uri).regions_PND[0])
    figures = pooling_figures(model, size)
    if not figures:
        raise StageError(f"{exhibit.name} does not pool by GPO: it has no such weights")
    return figures


def caption_similarity(exhibit: Exhibit) -> dict[str, Figure]:
    """How alike the captions of an image are (MV-VSE, figure 2).

    Differs from the paper: the captions' embeddings are the model's own, not Sentence-BERT's.

    Raises:
        StageError: no image has two captions.
    """
    gallery = exhibit.gallery
    same_P, other_P = caption_similarities(gallery.texts_CD, _image_of(gallery))
    if not len(same_P):
        raise StageError(f"{exhibit.name}: no image of its gallery has two captions to compare")
    title = f"Captions of {gallery.records[0].split}, as {exhibit.name} embeds them"
    return {"caption_similarity": plot_caption_similarity(same_P, other_P, title)}


def view_diversity(exhibits: Sequence[Exhibit]) -> dict[str, Figure]:
    """Which views captions choose, and how alike the views are; of several models over lambda or K (MV-VSE, figure 4).

    Raises:
        StageError: a model was not registered after a recorded training.
    """
    return {"view_diversity": plot_view_diversity([_summary(exhibit) for exhibit in exhibits])}


def _summary(exhibit: Exhibit) -> ViewSummary:
    gallery, params = exhibit.gallery, exhibit.training.params
    chosen_C = chosen_views(gallery.images_BKD, gallery.texts_CD, _image_of(gallery))
    views = gallery.images_BKD.shape[1]
    shares_K = torch.bincount(chosen_C, minlength=views) / max(1, len(chosen_C))
    counts = [len(record.captions) for record in gallery.records]
    rsum = evaluate_retrieval(gallery.images_BKD, gallery.texts_CD, counts).rsum
    has_lambda = params.get("loss.name") == "multi_view" and params.get("loss.bound") == "joint"
    lam = float(params["loss.lam"]) if has_lambda else None
    similarity = view_similarity(gallery.images_BKD) if views > 1 else None
    return ViewSummary(exhibit.name, lam, shares_K.tolist(), similarity, rsum)


def view_attention(exhibit: Exhibit) -> dict[str, Figure]:
    """Where two views of an image look, each with a caption that is nearest to it (MV-VSE, figure 5).

    Of images whose own captions choose different views some are taken, evenly spread.

    Differs from the paper: the similarities of a view with the regions go through a softmax, as UniVSE's do, so that
    maps share one scale.

    Raises:
        StageError: the model has one view, or its features are no regions.
    """
    gallery = exhibit.gallery
    if gallery.images_BKD.shape[1] < 2:
        raise StageError(f"{exhibit.name} has one view of each image: there are no two to compare")
    images_C = _image_of(gallery)
    chosen_C = chosen_views(gallery.images_BKD, gallery.texts_CD, images_C)
    pairs = differing_pairs(images_C.tolist(), chosen_C.tolist())
    if not pairs:
        raise StageError(f"{exhibit.name}: the captions of each image all choose the same view")
    figures = {}
    for number, captions in enumerate(_spread(pairs, _PICTURES), start=1):
        image, _ = gallery.captions[captions[0]]
        uri = gallery.records[image].image_uri
        regions = _regions(exhibit, uri)
        views = [int(chosen_C[caption]) for caption in captions]
        maps = [relevance(regions.image_KD[[view]], regions.of_view(view)) for view in views]
        titles = [
            f"view {view + 1}: {gallery.captions[caption][1].text}"
            for view, caption in zip(views, captions, strict=True)
        ]
        similarities = [
            float(regions.image_KD[view] @ gallery.texts_CD[caption])
            for view, caption in zip(views, captions, strict=True)
        ]
        figures[f"view_attention_{number}"] = plot_relevance(
            np.asarray(load_image(uri)), titles, torch.cat(maps), regions.places, similarities
        )
    return figures


def differing_pairs(images: Sequence[int], views: Sequence[int]) -> list[tuple[int, int]]:
    """For each image whose captions choose different views, its first caption and the first that differs from it.

    Args:
        images: the image of each caption, ascending.
        views: the view that each caption chooses.
    """
    pairs: dict[int, tuple[int, int]] = {}
    first: dict[int, int] = {}
    for caption, (image, view) in enumerate(zip(images, views, strict=True)):
        start = first.setdefault(image, caption)
        if image not in pairs and view != views[start]:
            pairs[image] = (start, caption)
    return list(pairs.values())


def top_5(exhibit: Exhibit) -> dict[str, Image]:
    """The first five images of captions and captions of images, relevant ones marked (VSE+2AD, figure 4)."""
    images, captions = text_to_image_rows(exhibit.gallery), image_to_text_rows(exhibit.gallery)
    return {
        "top_5_images": contact_sheet_png(f"Captions and their nearest images: {exhibit.name}", images),
        "top_5_captions": contact_sheet_png(f"Images and their nearest captions: {exhibit.name}", captions),
    }


def relevance_maps(exhibit: Exhibit, queries: Sequence[str]) -> dict[str, Figure]:
    """The images that a query finds, and where in them it is found (UniVSE, figure 6), a figure for each query.

    Raises:
        StageError: a query cannot be read, or the model's features are no regions.
    """
    try:
        queries_QD = exhibit.embedder.embed_texts(queries)
    except QueryError as error:
        raise StageError(f"the query {queries[error.position]!r} cannot be embedded: {error.reason}") from error
    figures = {}
    for number, (query, query_D) in enumerate(zip(queries, queries_QD, strict=True), start=1):
        figures[f"relevance_{number}"] = _retrieved(exhibit, query, query_D)
    return figures


def _retrieved(exhibit: Exhibit, query: str, query_D: Tensor) -> Figure:
    gallery = exhibit.gallery
    similarities_1S, images_1S = top_k(query_D.reshape(1, 1, -1), gallery.images_BKD, _RETRIEVED)
    uris = [gallery.records[image].image_uri for image in images_1S[0].tolist()]
    found = [_regions(exhibit, uri) for uri in uris]
    nearest = [int((regions.image_KD @ query_D).argmax()) for regions in found]
    maps = [
        relevance(query_D.unsqueeze(0), regions.of_view(view))[0] for regions, view in zip(found, nearest, strict=True)
    ]
    photographs = [np.asarray(load_image(uri)) for uri in uris]
    return plot_retrieved(query, photographs, maps, [each.places for each in found], similarities_1S[0].tolist())


def _regions(exhibit: Exhibit, uri: str) -> ImageRegions:
    try:
        return exhibit.embedder.embed_with_regions(uri)
    except QueryError as error:
        raise StageError(f"{exhibit.name}: the image {uri} of its gallery: {error.reason}") from error
    except ValueError as error:
        raise StageError(f"{exhibit.name}: {error}") from error


def _image_of(gallery: Gallery) -> Tensor:
    """The image of each caption (C,)."""
    return torch.tensor([image for image, _ in gallery.captions])


def _spread(items: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    return [items[place * len(items) // count] for place in range(min(count, len(items)))]
