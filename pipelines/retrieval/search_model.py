"""A model ready to search with: its embedder, its gallery and the gallery's index, loaded by the model's name.

Q queries of V views, B items of K views, S of them as a sample, D embedding, W dimensions that the index keeps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from pyarrow.parquet import ParquetFile
from torch import Tensor

from pipelines.inference.embedder import Embedder, QueryError
from pipelines.registry.models import CORRECTION, find_bundle, unpinned
from pipelines.retrieval.correction import Correction, relevant_items
from pipelines.retrieval.faiss_index import Among, Found, GalleryIndex, ItemIndex, index_origin
from pipelines.retrieval.filters import FilterError, matching_rows
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.retrieval.hits import Hit, as_hits
from pipelines.retrieval.image_gallery import load_image_gallery, read_state, read_vectors
from pipelines.retrieval.options import Kind, Target
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from preprocessing.features.extractor import ExtractorError
from vse_core.digests import DigestError
from vse_core.evaluation.calibration import hit_confidence
from vse_core.evaluation.nearest import best_pair_similarities

# The nearest items, on which confidences mostly depend, and a sample that stands for the others of a large gallery.
# A search of a graph has at least this number of candidates (faiss_index), so that with one view it takes no longer.
_NEAREST, _SAMPLE = 64, 5_000


class SearchError(StageError):
    """A search that cannot be done."""


class Answer(NamedTuple):
    """The hits of a query, and a warning if the model knows little of it, else ""."""

    hits: list[Hit]
    warning: str


@dataclass(frozen=True)
class HitConfidence:
    """What tells how likely a hit is relevant: all B items or an even sample of them, and a calibrated softmax.

    `relevant` is the number of items that a query is about.
    """

    index: ItemIndex
    indices_S: Tensor
    vectors_SKW: Tensor
    temperature: float
    relevant: float

    @classmethod
    def of(cls, gallery: Gallery, index: GalleryIndex, correction: Correction | None) -> Mapping[Target, Self]:
        """Return the confidences by the kind of the hits, as far as a gallery and its model's correction have them."""
        if gallery.biases is None or correction is None:
            return {}
        found = {}
        for target, calibration in correction.calibrations.items():
            of_target: ItemIndex = getattr(index, target)
            if items := of_target.facts.items:
                chosen_S = torch.linspace(0, items - 1, min(items, _SAMPLE)).round().long()
                vectors_SKW, relevant = of_target.kept_items(chosen_S), relevant_items(gallery, target)
                found[target] = cls(of_target, chosen_S, vectors_SKW, calibration.temperature, relevant)
        return found

    def of_hits(self, queries_QVD: Tensor, hits: Sequence[Found], nearest: Sequence[Found]) -> list[list[float]]:
        """Return the confidence of each hit of each query.

        `nearest` are the nearest of all items, whichever are hits; the other items are counted by the sample's.
        """
        scores_QS = best_pair_similarities(self.index.kept_queries(queries_QVD), self.vectors_SKW)
        confidences = []
        for found, near, scores_S in zip(hits, nearest, scores_QS, strict=True):
            scores_k, near_scores = torch.from_numpy(found.scores), torch.from_numpy(near.scores)
            others_S = ~torch.isin(self.indices_S, torch.from_numpy(near.indices))
            log_total = (near_scores / self.temperature).logsumexp(0)
            if others_S.any():
                each = (self.index.facts.items - len(near_scores)) / int(others_S.sum())
                log_others = (scores_S[others_S] / self.temperature).logsumexp(0) + math.log(each)
                log_total = torch.logaddexp(log_total, log_others)
            confidences.append(hit_confidence(scores_k, log_total, self.temperature, self.relevant).tolist())
        return confidences


@dataclass(frozen=True)
class SearchModel:
    """A model with its gallery and index.

    `thumbnails` are small JPEG files of the images by id, which a gallery of somebody's own images has, as it has the
    table of their vectors (`stored`) and its `state`, which names its version. `confidence` is by the kind of the hits.
    """

    name: str
    embedder: Embedder
    gallery: Gallery
    index: GalleryIndex
    thumbnails: Mapping[str, Path] = field(default_factory=dict)
    correction: Correction | None = None
    confidence: Mapping[Target, HitConfidence] = field(default_factory=dict)
    stored: ParquetFile | None = None
    state: Mapping[str, Any] | None = None

    def target_of(self, kind: Kind, wanted: Target | None = None) -> Target:
        """Return what a query looks for: what is wanted, else the other kind, or images if there are no captions.

        Raises SearchError if captions are wanted and there are none.
        """
        if self.gallery.captions:
            return wanted or ("images" if kind == "text" else "captions")
        if wanted == "captions":
            raise SearchError("the gallery has no captions: the target can only be images")
        return "images"

    def embed(self, queries: Sequence[str], kind: Kind) -> Tensor:
        """Embed texts, or images by path or URI, into (Q, V, D)."""
        if kind == "image":
            return self.embedder.embed_images(queries)
        return self.embedder.embed_texts(queries).unsqueeze(1)

    def embed_own(self, image: int) -> Tensor:
        """Return an image of the gallery as a query (1, V, D)."""
        if self.gallery.images_BKD.shape[-1]:
            return self.gallery.images_BKD[[image]]
        index = self.index.images
        if not index.facts.compression:
            return index.kept_items(torch.tensor([image]))[..., : index.facts.dim]
        assert self.stored is not None
        return read_vectors(self.stored, image)

    def find(
        self, queries_QVD: Tensor, kind: Kind, k: int, target: Target, min_confidence: float = 0, where: str = ""
    ) -> list[list[Hit]]:
        """Return the k items (or all) nearest to each query, best first.

        Hubs are corrected if there is a bank; images for an image are not, whose bank is of captions.
        The nearest are chosen among those for which a condition (`filters`) holds, if there is one; then hits of a
        lower confidence are left out. Raises SearchError if a confidence is wanted, and hits have none, or the
        condition does not fit the gallery.
        """
        among = self.matching(where, target) if where else None
        is_between_kinds = (kind == "text") == (target == "images")
        confidence = self.confidence.get(target) if is_between_kinds else None
        if confidence is None and min_confidence:
            missing = ": the model has no bank of training captions" if is_between_kinds else ""
            raise SearchError(f"hits have no confidence when {target} are searched with {kind}s{missing}")
        index: ItemIndex = getattr(self.index, target)
        depth = k if confidence is None else max(k, _NEAREST)
        candidates = index.search(queries_QVD, depth, among, is_corrected=is_between_kinds)
        nearest = [Found(found.scores[:k], found.indices[:k]) for found in candidates]
        biases = self.gallery.biases
        if biases is None or not is_between_kinds:
            cosines = [found.scores for found in nearest]
        else:
            bias = (biases.images_B if target == "images" else biases.texts_C).numpy()
            cosines = [found.scores + bias[found.indices] for found in nearest]
        hits = [
            as_hits(self.gallery, target, similarities.tolist(), found.indices.tolist())
            for similarities, found in zip(cosines, nearest, strict=True)
        ]
        if confidence is None:
            return hits
        of_all = candidates if among is None else index.search(queries_QVD, _NEAREST)
        return [
            [replace(hit, confidence=value) for hit, value in zip(*each, strict=True) if value >= min_confidence]
            for each in zip(hits, confidence.of_hits(queries_QVD, nearest, of_all), strict=True)
        ]

    def matching(self, where: str, target: Target = "images") -> Among:
        """Return for each image, or caption, whether a condition holds for the image; SearchError if it cannot."""
        try:
            among_B = matching_rows(self.gallery.metadata, where)
        except FilterError as error:
            raise SearchError(str(error)) from error
        if target == "images":
            return among_B
        return np.repeat(among_B, [len(record.captions) for record in self.gallery.records])

    def warnings(self, queries: Sequence[str], queries_QVD: Tensor, kind: Kind) -> list[str]:
        """Return for each query a warning if the model cannot know what it means, else "".

        A text has words that it has never learned, which it reads as one and the same; or the query is unlike the
        captions of training.
        """
        unknown = [self.embedder.texts.unknown_words(query) if kind == "text" else [] for query in queries]
        told = [f"Words that the model has not learned: {', '.join(words)}." if words else "" for words in unknown]
        if self.correction is None or kind not in self.correction.familiar:
            return told
        floor = self.correction.familiar[kind]
        near = self.correction.nearest_caption(queries_QVD).tolist()
        unlike = "The query is unlike the captions of training: the nearest one has similarity"
        return [
            f"{words} {unlike} {each:.3f}, usual is {floor:.3f} or more.".strip() if each < floor else words
            for words, each in zip(told, near, strict=True)
        ]

    def answer(
        self, query: str, kind: Kind, k: int, target: Target, min_confidence: float = 0, where: str = ""
    ) -> Answer:
        """Return the k items (or all) nearest to a text, or to the image of a path or URI, best first.

        Raises SearchError if the query cannot be embedded, or as `find`.
        """
        try:
            query_1VD = self.embed([query], kind)
        except QueryError as error:
            raise SearchError(f"cannot search with the {kind} {query[:200]!r}: {error.reason}") from error
        (hits,) = self.find(query_1VD, kind, k, target, min_confidence, where)
        return Answer(hits, *self.warnings([query], query_1VD, kind))


def load_search_model(reference: str, tracking_uri: str) -> SearchModel:
    """Load a model with its gallery and index.

    `reference` is NAME, NAME@ALIAS, NAME/VERSION, a `models:/` URI, or a directory with the parts of a bundle or with
    a gallery of images without captions, which names its model.
    """
    own_images = read_state(Path(reference))
    try:
        name, bundle = find_bundle(reference if own_images is None else own_images["model"], tracking_uri)
    except DigestError as error:
        if own_images is None:
            raise
        again = command("index", "--name", Path(reference).name, "--model", unpinned(own_images["model"]))
        raise SearchError(f"{error}; then index the images again: {again}") from error
    if own_images is None and not (bundle / "gallery").is_dir():
        indexed = command("index", "--model", unpinned(name), "--images", "FOLDER", "--name", "NAME")
        raise SearchError(f"{name} has no gallery of its own: index images ({indexed}), and give --gallery NAME")
    try:
        embedder = Embedder(bundle / "model", bundle / "extractor")
        correction = Correction.load(bundle / CORRECTION)
        if own_images is not None:
            found = load_image_gallery(Path(reference), own_images, bundle)
            name, (gallery, index, thumbnails, stored) = reference, found
        else:
            gallery, thumbnails, stored = Gallery.load(bundle / "gallery"), {}, None
            index = GalleryIndex.load(bundle / "index", index_origin(bundle / "model", bundle / "gallery"))
        confidence = HitConfidence.of(gallery, index, correction)
        return SearchModel(name, embedder, gallery, index, thumbnails, correction, confidence, stored, own_images)
    except (FileNotFoundError, ValueError, GalleryError, ExtractorError) as error:
        if own_images is not None and read_state(Path(reference)) != own_images:
            return load_search_model(reference, tracking_uri)  # an update has replaced the version meanwhile
        if own_images is not None and isinstance(error, DigestError):
            again = command("index", "--name", Path(reference).name)
            raise SearchError(f"{error.reason}: index the images again: {again}") from error
        raise SearchError(f"model {reference!r} cannot be loaded: {error}") from error
