"""FAISS indices over a gallery: nearest items of a query, exact, or approximate for large galleries.

Q queries of V views, B items (images or captions) of K views, D embedding.

An index holds every view of every item as a vector of its own; the similarity of a query and an item is the largest
inner product over their views. As an item has K vectors, the first ``k * K`` vectors of a query's view belong to at
least k items. One that corrects hubs holds vectors of D + 1 dimensions (`with_bias`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import faiss
import numpy as np
from torch import Tensor

from pipelines.retrieval.gallery import EMBEDDINGS, Biases, GalleryError
from pipelines.runtime.commands import command
from pipelines.runtime.stage import content_digest
from preprocessing.reading import damage_as
from preprocessing.storage.atomic import write_json_atomic
from vse_core.digests import check_digests, write_digests
from vse_core.evaluation.hubs import with_bias, with_one
from vse_core.evaluation.nearest import top_k

Kind = Literal["exact", "approximate"]

INDEX = "index.json"

# An exact search of 50,000 vectors of 1,024 dimensions reads 200 MB: some tens of milliseconds on one core.
_EXACT_VECTORS = 50_000
# HNSW's M and efConstruction: Malkov and Yashunin (2018), section 4.1, find M of 5 to 48 reasonable, more for more
# dimensions.
_NEIGHBOURS, _BUILD_CANDIDATES = 32, 200
# HNSW's efSearch, doubled until the wanted recall is reached.
_SEARCH_CANDIDATES = (64, 128, 256, 512, 1024)
_WANTED_RECALL, _RECALL_DEPTH, _RECALL_QUERIES = 0.99, 10, 1000


class Found(NamedTuple):
    """The nearest items of one query, best first: (corrected) similarities (k,) and indices in the gallery (k,)."""

    scores: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class Facts:
    """The properties of an index of B items with K views of D dimensions.

    `candidates` is efSearch of an approximate index, 0 for an exact one; `recall` the share of the true first ten that
    it finds, measured with queries of the other kind, 1 for an exact one. Vectors have one more dimension if hubs are
    corrected.
    """

    kind: Kind
    items: int
    views: int
    dim: int
    candidates: int
    recall: float
    is_corrected: bool = False


@dataclass(frozen=True)
class ItemIndex:
    """The index of images, or of captions: FAISS's index of the B * K vectors, view after view."""

    vectors: faiss.Index
    facts: Facts

    @classmethod
    def build(cls, items_BKD: Tensor, queries_QVD: Tensor, kind: Kind, bias_B: Tensor | None = None) -> Self:
        """Index unit vectors, corrected by what hubs lose; a sample of the queries measures an approximate index."""
        items, views, dim = items_BKD.shape
        facts = Facts(kind, items, views, dim, 0, 1.0, bias_B is not None)
        if bias_B is not None:
            items_BKD, queries_QVD = with_bias(items_BKD, bias_B), with_one(queries_QVD)
        vectors = np.ascontiguousarray(items_BKD.flatten(0, 1).float().cpu().numpy())
        if kind == "exact":
            index = faiss.IndexFlatIP(vectors.shape[1])
            index.add(vectors)
            return cls(index, facts)
        index = faiss.IndexHNSWFlat(vectors.shape[1], _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _BUILD_CANDIDATES
        index.add(vectors)
        sample_QVD = queries_QVD[:: max(1, len(queries_QVD) // _RECALL_QUERIES)][:_RECALL_QUERIES]
        truth_Qk = top_k(sample_QVD, items_BKD, _RECALL_DEPTH)[1].numpy()
        for candidates in _SEARCH_CANDIDATES:
            found = cls(index, replace(facts, candidates=candidates))._nearest(sample_QVD, _RECALL_DEPTH)
            hits = sum(len(np.intersect1d(each.indices, truth)) for each, truth in zip(found, truth_Qk, strict=True))
            recall = hits / truth_Qk.size
            if recall >= _WANTED_RECALL:
                break
        return cls(index, replace(facts, candidates=candidates, recall=round(recall, 4)))

    def search(self, queries_QVD: Tensor, k: int) -> list[Found]:
        """Return the k items (or all, k from 1) nearest to each query; an approximate index may miss some."""
        return self._nearest(with_one(queries_QVD) if self.facts.is_corrected else queries_QVD, k)

    def _nearest(self, queries_QVD: Tensor, k: int) -> list[Found]:
        depth = min(k * self.facts.views, self.vectors.ntotal)
        if depth == 0:
            return [Found(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries_QVD)
        queries = np.ascontiguousarray(queries_QVD.flatten(0, 1).float().cpu().numpy())
        exact = self.facts.kind == "exact"
        parameters = None if exact else faiss.SearchParametersHNSW(efSearch=max(self.facts.candidates, depth))
        scores, vectors = self.vectors.search(queries, depth, params=parameters)
        # One row a query: the candidates of all its views.
        shape = (len(queries_QVD), -1)
        rows = zip(scores.reshape(shape), vectors.reshape(shape), strict=True)
        return [_best_of_views(*row, self.facts.views, k) for row in rows]


@dataclass(frozen=True)
class GalleryIndex:
    """The indices of a gallery's images and captions."""

    images: ItemIndex
    captions: ItemIndex

    @classmethod
    def build(cls, images_BKD: Tensor, texts_CD: Tensor, biases: Biases | None = None) -> Self:
        """Index a gallery: exact up to 50,000 vectors, approximate beyond if the recall can be measured."""
        texts_C1D = texts_CD.unsqueeze(1)
        of_images_B, of_texts_C = biases or (None, None)
        return cls(
            ItemIndex.build(images_BKD, texts_C1D, _kind(images_BKD, texts_C1D), of_images_B),
            ItemIndex.build(texts_C1D, images_BKD, _kind(texts_C1D, images_BKD), of_texts_C),
        )

    def facts(self) -> dict[str, Facts]:
        """Return the properties of both."""
        return {name: index.facts for name, index in vars(self).items()}

    def save(self, directory: Path, origin: Mapping[str, str]) -> None:
        """Write `images.faiss`, `captions.faiss`, `index.json` with its origin (see `index_origin`) and digests."""
        directory.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {"origin": dict(origin)}
        for name, index in vars(self).items():
            faiss.write_index(index.vectors, str(directory / f"{name}.faiss"))
            content[name] = asdict(index.facts)
        write_json_atomic(directory / INDEX, content)
        write_digests(directory, INDEX, *(f"{name}.faiss" for name in vars(self)))

    @classmethod
    def load(cls, directory: Path, origin: Mapping[str, str]) -> Self:
        """Read an index that `save` has written; refuse one of another origin, or (DigestError) a damaged one."""
        files = {name: directory / f"{name}.faiss" for name in ("images", "captions")}
        # Checked first, as FAISS trusts its files.
        check_digests(directory, INDEX, *(file.name for file in files.values()))
        with damage_as(GalleryError, f"{directory / INDEX} cannot be read", "build the index again"):
            content = json.loads((directory / INDEX).read_text(encoding="utf-8"))
            others = [name for name, digest in origin.items() if content["origin"].get(name) != digest]
            if others:
                raise GalleryError(
                    f"the index in {directory} was built from another {' and '.join(others)}: build it again with "
                    f"{command('index')}"
                )
            facts = {name: Facts(**content[name]) for name in files}
            return cls(*(ItemIndex(faiss.read_index(str(file)), facts[name]) for name, file in files.items()))


def index_origin(model: Path, gallery: Path) -> dict[str, str]:
    """Return the origin of an index: the digests of a model directory's weights and of a gallery's embeddings."""
    return {"model": content_digest(model / "model.safetensors"), "gallery": content_digest(gallery / EMBEDDINGS)}


def _kind(items_BKD: Tensor, queries_QVD: Tensor) -> Kind:
    is_small = items_BKD.shape[0] * items_BKD.shape[1] <= _EXACT_VECTORS
    return "exact" if is_small or not len(queries_QVD) else "approximate"


def _best_of_views(scores: np.ndarray, vectors: np.ndarray, views: int, k: int) -> Found:
    """Return the k best items among the vectors found by the views of one query, each item by its best vector."""
    order = np.argsort(-scores, kind="stable")
    order = order[vectors[order] >= 0]  # FAISS fills up with -1 if the graph leads to fewer
    items = vectors[order] // views
    first = np.sort(np.unique(items, return_index=True)[1])[:k]
    return Found(scores[order[first]], items[first])
