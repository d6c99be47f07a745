"""FAISS indices over a gallery: what is nearest to a query, exactly, or for large galleries approximately.

Q queries of V views, B items (images or captions) of K views, D embedding.

An index holds every view of every item as a vector of its own, and the similarity of a query and an item is the
largest inner product over their views. The first ``k * K`` vectors of a query's view belong to at least k items, as an
item has K of them, so that none of the first k items is missed by asking for so many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import faiss
import numpy as np
from torch import Tensor

from pipelines.retrieval.gallery import EMBEDDINGS
from pipelines.runtime.stage import content_digest
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.nearest import top_k

Kind = Literal["exact", "approximate"]

INDEX = "index.json"

# An exact search of so many vectors of 1,024 dimensions reads 200 MB: some tens of milliseconds on one core.
_EXACT_VECTORS = 50_000
# Neighbours of a vector in the graph, and candidates looked at while it is built: Malkov and Yashunin (2018), section
# 4.1, find 5 to 48 neighbours reasonable, more for more dimensions.
_NEIGHBOURS, _BUILD_CANDIDATES = 32, 200
# Candidates looked at in a search, doubled until the recall is reached that is asked for.
_SEARCH_CANDIDATES = (64, 128, 256, 512, 1024)
_WANTED_RECALL, _RECALL_DEPTH, _RECALL_QUERIES = 0.99, 10, 1000


class GalleryIndexError(Exception):
    """An index that cannot be used; the message names the folder and what is wrong with it."""


class Found(NamedTuple):
    """The nearest items of one query, best first: similarities (k,) and places in the gallery (k,)."""

    similarities: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Facts:
    """What is known of an index.

    Attributes:
        kind: "exact" (every vector is compared) or "approximate" (a graph, HNSW).
        items: B.
        views: K.
        dim: D.
        candidates: vectors that an approximate search looks at; 0 where all are.
        recall: share of the true first ten that it finds, measured on queries of the other kind; 1 where it is exact.
    """

    kind: Kind
    items: int
    views: int
    dim: int
    candidates: int
    recall: float


class ItemIndex:
    """The index of images, or of captions.

    Args:
        vectors: FAISS's index of the B * K vectors, view after view.
        facts: what is known of it.
    """

    def __init__(self, vectors: faiss.Index, facts: Facts) -> None:
        self.vectors = vectors
        self.facts = facts

    @classmethod
    def build(cls, items_BKD: Tensor, queries_QVD: Tensor, kind: Kind) -> ItemIndex:
        """Index unit vectors.

        Args:
            items_BKD: what is to be found.
            queries_QVD: what it will be looked for with, of which a sample measures an approximate index.
            kind: of the index.
        """
        items, views, dim = items_BKD.shape
        vectors = np.ascontiguousarray(items_BKD.flatten(0, 1).float().cpu().numpy())
        if kind == "exact":
            index = faiss.IndexFlatIP(dim)
            index.add(vectors)
            return cls(index, Facts(kind, items, views, dim, 0, 1.0))
        index = faiss.IndexHNSWFlat(dim, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _BUILD_CANDIDATES
        index.add(vectors)
        sample_QVD = queries_QVD[:: max(1, len(queries_QVD) // _RECALL_QUERIES)][:_RECALL_QUERIES]
        truth_Qk = top_k(sample_QVD, items_BKD, _RECALL_DEPTH)[1].numpy()
        for candidates in _SEARCH_CANDIDATES:
            built = cls(index, Facts(kind, items, views, dim, candidates, 0.0))
            recall = _recall(built.search(sample_QVD, _RECALL_DEPTH), truth_Qk)
            if recall >= _WANTED_RECALL:
                break
        return cls(index, Facts(kind, items, views, dim, candidates, round(recall, 4)))

    def search(self, queries_QVD: Tensor, k: int) -> list[Found]:
        """The k items nearest to each query, all of them where there are fewer; an approximate index may miss some.

        Raises:
            ValueError: k is below 1, or the queries have another width.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if queries_QVD.shape[-1] != self.facts.dim:
            raise ValueError(f"queries have {queries_QVD.shape[-1]} dimensions, the index {self.facts.dim}")
        depth = min(k * self.facts.views, self.vectors.ntotal)
        if depth == 0:
            return [Found(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries_QVD)
        queries = np.ascontiguousarray(queries_QVD.flatten(0, 1).float().cpu().numpy())
        similarities, places = self.vectors.search(queries, depth, params=self._parameters(depth))
        # One row a query: the candidates of all its views.
        shape = (len(queries_QVD), -1)
        rows = zip(similarities.reshape(shape), places.reshape(shape), strict=True)
        return [_best_of_views(*row, self.facts.views, k) for row in rows]

    def _parameters(self, depth: int) -> faiss.SearchParameters | None:
        if self.facts.kind == "exact":
            return None
        return faiss.SearchParametersHNSW(efSearch=max(self.facts.candidates, depth))


@dataclass(frozen=True)
class GalleryIndex:
    """The indices of a gallery's images and captions."""

    images: ItemIndex
    captions: ItemIndex

    @classmethod
    def build(cls, images_BKD: Tensor, texts_CD: Tensor, kind: Kind | Literal["auto"]) -> GalleryIndex:
        """Index a gallery's embeddings; "auto" is exact up to 50,000 vectors and approximate above."""
        texts_C1D = texts_CD.unsqueeze(1)
        return cls(
            ItemIndex.build(images_BKD, texts_C1D, _kind(kind, images_BKD, texts_C1D)),
            ItemIndex.build(texts_C1D, images_BKD, _kind(kind, texts_C1D, images_BKD)),
        )

    def facts(self) -> dict[str, Facts]:
        """What is known of both."""
        return {name: index.facts for name, index in self._parts().items()}

    def save(self, directory: Path, origin: Mapping[str, str]) -> None:
        """Write `images.faiss`, `captions.faiss` and, last, `index.json` into a directory, made where it is not there.

        Args:
            directory: where to write.
            origin: what it was built from: name -> digest.
        """
        directory.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {"origin": dict(origin)}
        for name, index in self._parts().items():
            file = directory / f"{name}.faiss"
            faiss.write_index(index.vectors, str(file))
            content[name] = {**asdict(index.facts), "digest": content_digest(file)}
        write_json_atomic(directory / INDEX, content)

    @classmethod
    def load(cls, directory: Path, origin: Mapping[str, str]) -> GalleryIndex:
        """Read what `save` has written.

        Args:
            directory: where it is.
            origin: what it has to be built from.

        Raises:
            GalleryIndexError: a file is missing or damaged, or it was built from something else.
        """
        try:
            content = json.loads((directory / INDEX).read_text(encoding="utf-8"))
            others = [name for name, digest in origin.items() if content["origin"].get(name) != digest]
            if others:
                raise GalleryIndexError(
                    f"the index in {directory} was built from another {' and '.join(others)}: build it again with "
                    "pipelines/index.py"
                )
            return cls(*(_load_items(directory, name, content[name]) for name in ("images", "captions")))
        except FileNotFoundError as error:
            raise GalleryIndexError(f"{directory} holds no index: {INDEX} is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            raise GalleryIndexError(f"{directory / INDEX} cannot be read ({error!r}): build the index again") from error

    def _parts(self) -> dict[str, ItemIndex]:
        return {"images": self.images, "captions": self.captions}


def index_origin(model: Path, gallery: Path) -> dict[str, str]:
    """What an index belongs to: the digests of a model directory's weights and of a gallery's embeddings."""
    return {"model": content_digest(model / "model.safetensors"), "gallery": content_digest(gallery / EMBEDDINGS)}


def _kind(kind: Kind | Literal["auto"], items_BKD: Tensor, queries_QVD: Tensor) -> Kind:
    """The kind that was asked for or that the size suggests; exact where an approximate one could not be measured."""
    if not len(items_BKD) or not len(queries_QVD):
        return "exact"
    if kind != "auto":
        return kind
    return "exact" if items_BKD.shape[0] * items_BKD.shape[1] <= _EXACT_VECTORS else "approximate"


def _load_items(directory: Path, name: str, content: dict[str, Any]) -> ItemIndex:
    file = directory / f"{name}.faiss"
    facts = {key: value for key, value in content.items() if key != "digest"}
    if not file.is_file():
        raise GalleryIndexError(f"{directory} holds no index: {file.name} is missing")
    # Before FAISS reads it, which trusts its files.
    if content_digest(file) != content["digest"]:
        raise GalleryIndexError(f"{file} is damaged: its digest is not the one in {INDEX}; build the index again")
    return ItemIndex(faiss.read_index(str(file)), Facts(**facts))


def _best_of_views(similarities: np.ndarray, vectors: np.ndarray, views: int, k: int) -> Found:
    """The k best items among the vectors that the views of one query have found, each item by its best vector."""
    order = np.argsort(-similarities, kind="stable")
    order = order[vectors[order] >= 0]  # a graph may lead to fewer than were asked for
    items = vectors[order] // views
    first = np.sort(np.unique(items, return_index=True)[1])[:k]
    return Found(similarities[order[first]], items[first])


def _recall(found: list[Found], truth_Qk: np.ndarray) -> float:
    """Share of the relevant items that were found."""
    hits = sum(len(np.intersect1d(each.places, truth)) for each, truth in zip(found, truth_Qk, strict=True))
    return hits / truth_Qk.size
