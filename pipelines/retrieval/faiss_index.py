"""FAISS indices over a gallery: nearest items of a query, exact, or approximate for large galleries.

Q queries of V views, B items (images or captions) of K views, D embedding, W dimensions that are kept.

An index holds every view of every item as a vector of its own; the similarity of a query and an item is the largest
inner product over their views. As an item has K vectors, the first ``k * K`` vectors of a query's view belong to at
least k items. One that corrects hubs holds vectors of D + 1 dimensions (`with_bias`), a compressed one fewer, or
smaller numbers.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

import faiss
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipelines.retrieval.correction import Correction
from pipelines.retrieval.gallery import EMBEDDINGS, Biases, GalleryError
from pipelines.runtime.commands import command
from pipelines.runtime.stage import content_digest
from pipelines.schema.compression import Compression
from preprocessing.reading import damage_as
from preprocessing.storage.atomic import write_json_atomic
from vse_core.digests import check_digests, write_digests
from vse_core.evaluation.hubs import with_bias, with_one
from vse_core.evaluation.nearest import top_k

Kind = Literal["exact", "approximate"]
Rows = TypeVar("Rows", Tensor, npt.NDArray[np.float32])
# One for each item: whether a search may find it.
Among = npt.NDArray[np.bool_]

INDEX = "index.json"

# An exact search of 50,000 vectors of 1,024 dimensions reads 200 MB: some tens of milliseconds on one core. Images
# without captions may be more, as their recall is measured with queries that are less like those to come.
_EXACT_VECTORS, _EXACT_IMAGES = 50_000, 200_000
# HNSW's M and efConstruction: Malkov and Yashunin (2018), section 4.1, find M of 5 to 48 reasonable, more for more
# dimensions.
_NEIGHBOURS, _BUILD_CANDIDATES = 32, 200
# Beyond this, inverted lists: a graph of more vectors takes hours to build, and 270 bytes for each of them.
_MOST_IN_GRAPH = 1_000_000
# HNSW's efSearch, or the lists that are searched, doubled until the wanted recall is reached.
_SEARCH_CANDIDATES, _SEARCH_LISTS = (64, 128, 256, 512, 1024), (8, 16, 32, 64, 128, 256, 512)
_WANTED_RECALL, _RECALL_DEPTH, _RECALL_QUERIES = 0.99, 10, 1000
# The names of FAISS's storages of numbers.
_STORAGES = {"float32": "Flat", "float16": "SQfp16", "int8": "SQ8"}
# FAISS compares smaller numbers by vector instructions if they are a multiple of 16: 512 forty times faster than 513.
_ALIGNED = 16
# Vectors that ranges of int8 and inverted lists are fitted to, at most.
_FITTED = 2**18


class Found(NamedTuple):
    """The nearest items of one query, best first: (corrected) similarities (k,) and indices in the gallery (k,)."""

    scores: np.ndarray
    indices: np.ndarray


class Sample(NamedTuple):
    """Vectors (N, V, D) that an index is fitted to or measured with, and what they are."""

    vectors_NVD: Tensor
    name: str


@dataclass(frozen=True)
class Facts:
    """The properties of an index of B items with K views of D dimensions.

    `candidates` is efSearch of an approximate index, or with `lists` (inverted ones) how many of them are searched, 0
    for an exact one; `recall` the share of the true first ten of the full vectors that it finds, `measured_with` these
    queries, 1 for an exact one of full vectors. Vectors have one more dimension if hubs are corrected. `compression` is
    the name of one, "" if there is none, and `fitted_to` the vectors that its dimensions were found in.
    """

    kind: Kind
    items: int
    views: int
    dim: int
    candidates: int
    recall: float
    is_corrected: bool = False
    lists: int = 0
    compression: str = ""
    fitted_to: str = ""
    measured_with: str = "queries of the other kind"

    def __str__(self) -> str:
        approximate = "approximate (inverted lists)" if self.lists else "approximate (HNSW)"
        kind = "exact" if self.kind == "exact" else approximate
        kind = f"{kind}, hubs corrected" if self.is_corrected else kind
        fitted = f", fitted to {self.fitted_to}" if self.fitted_to else ""
        said = f"{kind}, {self.compression}{fitted}" if self.compression else kind
        if not self.items or (self.kind == "exact" and not self.compression):
            return said
        return f"{said}, with recall {self.recall:.3f} of the first ten, measured with {self.measured_with}"


@dataclass(frozen=True)
class ItemIndex:
    """The index of images, or of captions: FAISS's index of the B * K vectors, view after view."""

    vectors: faiss.Index
    facts: Facts

    @classmethod
    def build(
        cls,
        items_BKD: Tensor,
        queries: Sample,
        kind: Kind,
        bias_B: Tensor | None = None,
        compression: str = "",
        fitted: Sample | None = None,
    ) -> Self:
        """Index unit vectors, corrected by what hubs lose; a sample of the queries measures what is not exact.

        A compression is fitted to other vectors, or else to the items. Raises GalleryError if they are too few, or too
        short.
        """
        items, views, dim = items_BKD.shape
        compression = compression if items else ""
        fitted = fitted or Sample(items_BKD, f"the {items:,} items themselves")
        small = Compression.parse(compression or None)
        lists = round(4 * math.sqrt(items * views)) if kind == "approximate" and items * views > _MOST_IN_GRAPH else 0
        try:
            transform = _fit_transform(small, _some(_vectors(fitted.vectors_NVD), _FITTED), bias_B is not None)
        except ValueError as error:
            raise GalleryError(f"the gallery cannot be compressed: {error}") from error
        queries_QVD = queries.vectors_NVD
        if bias_B is not None:
            items_BKD, queries_QVD = with_bias(items_BKD, bias_B), with_one(queries_QVD)
        vectors = _vectors(items_BKD)
        width = vectors.shape[1] if transform is None else transform.d_out
        structure = "" if kind == "exact" else f"IVF{lists}," if lists else f"HNSW{_NEIGHBOURS},"
        index = faiss.index_factory(width, f"{structure}{_STORAGES[small.number]}", faiss.METRIC_INNER_PRODUCT)
        if structure and not lists:
            index.hnsw.efConstruction = _BUILD_CANDIDATES
        index = index if transform is None else faiss.IndexPreTransform(transform, index)
        if len(vectors):
            index.train(_some(vectors, _FITTED))
        index.add(vectors)
        facts = Facts(kind, items, views, dim, 0, 1.0, bias_B is not None, lists, compression)
        facts = replace(facts, fitted_to=fitted.name if small.width else "", measured_with=queries.name)
        return cls(index, facts)._measured(items_BKD, _some(queries_QVD, _RECALL_QUERIES))

    def _measured(self, items_BKD: Tensor, queries_QVD: Tensor) -> Self:
        """Return the index with its recall, and with as many candidates as the wanted one takes.

        That is the recall of what a comparison with all vectors would find: more candidates do not make up for what
        compression loses.
        """
        facts = self.facts
        if not facts.items or (facts.kind == "exact" and not facts.compression):
            return self
        true_Qk = list(top_k(queries_QVD, items_BKD, _RECALL_DEPTH)[1].numpy())
        found = [each.indices for each in self._nearest(queries_QVD, _RECALL_DEPTH, is_exact=True)]
        best = found if facts.compression else true_Qk
        for candidates in (_SEARCH_LISTS if facts.lists else _SEARCH_CANDIDATES) if facts.kind != "exact" else ():
            facts = replace(facts, candidates=candidates)
            found = [each.indices for each in replace(self, facts=facts)._nearest(queries_QVD, _RECALL_DEPTH)]
            if _overlap(found, best) >= _WANTED_RECALL:
                break
        return replace(self, facts=replace(facts, recall=round(_overlap(found, true_Qk), 4)))

    def search(
        self, queries_QVD: Tensor, k: int, among_B: Among | None = None, *, is_corrected: bool = True
    ) -> list[Found]:
        """Return the k items (or all, k from 1) nearest to each query, among some of them if they are given.

        An approximate index may miss some, but none among those that are given, which are compared one by one.
        `is_corrected`: with hubs corrected, if the index does.
        """
        if self.facts.is_corrected:
            queries_QVD = with_one(queries_QVD, is_corrected)
        return self._nearest(queries_QVD, k, among_B)

    def kept_queries(self, queries_QVD: Tensor) -> Tensor:
        """Return queries as they are compared with items (Q, V, W), with hubs corrected."""
        queries_QVD = with_one(queries_QVD) if self.facts.is_corrected else queries_QVD
        _, queries = self._inner(_vectors(queries_QVD))
        return torch.from_numpy(queries).view(*queries_QVD.shape[:2], -1)

    def kept_items(self, indices_S: Tensor | None = None) -> Tensor:
        """Return all items, or some, as they are kept (S, K, W), with hubs corrected."""
        items, views = self.facts.items, self.facts.views
        index = faiss.downcast_index(self.vectors.index) if _has_transform(self.vectors) else self.vectors
        if self.facts.lists:
            index.make_direct_map()
        indices_S = torch.arange(items) if indices_S is None else indices_S
        vectors = (indices_S.unsqueeze(1) * views + torch.arange(views)).flatten()
        return torch.from_numpy(index.reconstruct_batch(vectors.numpy())).view(len(indices_S), views, -1)

    def _inner(self, queries: npt.NDArray[np.float32]) -> tuple[faiss.Index, npt.NDArray[np.float32]]:
        """Return FAISS's index without its transform, and the transformed queries."""
        if not _has_transform(self.vectors):
            return self.vectors, queries
        transform = faiss.downcast_VectorTransform(self.vectors.chain.at(0))
        return faiss.downcast_index(self.vectors.index), transform.apply(queries)

    def _nearest(
        self, queries_QVD: Tensor, k: int, among_B: Among | None = None, *, is_exact: bool = False
    ) -> list[Found]:
        views = self.facts.views
        chosen = self.facts.items if among_B is None else int(among_B.sum())
        depth = min(k, chosen) * views
        if depth == 0:
            return [Found(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries_QVD)
        # What a condition chooses may all be far from the query, where neither a graph nor lists lead.
        is_exact = is_exact or among_B is not None or self.facts.kind == "exact"
        bits = None if among_B is None else np.packbits(np.repeat(among_B, views), bitorder="little")
        index, queries = self._inner(_vectors(queries_QVD))
        index, parameters = self._searched(index, depth, bits, is_exact)
        scores, vectors = index.search(queries, depth, params=parameters)
        # One row a query: the candidates of all its views.
        shape = (len(queries_QVD), -1)
        rows = zip(scores.reshape(shape), vectors.reshape(shape), strict=True)
        found = [_best_of_views(*row, views, k) for row in rows]
        short = [query for query, each in enumerate(found) if len(each.indices) < min(k, chosen)]
        if short and not is_exact:
            for query, each in zip(short, self._nearest(queries_QVD[short], k, is_exact=True), strict=True):
                found[query] = each
        return found

    def _searched(
        self, index: faiss.Index, depth: int, bits: npt.NDArray[np.uint8] | None, is_exact: bool
    ) -> tuple[faiss.Index, faiss.SearchParameters]:
        """Return the index that is searched, and FAISS's parameters; more candidates than measured if depth asks it."""
        selector = None if bits is None else faiss.IDSelectorBitmap(bits)
        facts = self.facts
        if facts.lists:
            holding = math.ceil(2 * depth * facts.lists / (facts.items * facts.views))
            probed = facts.lists if is_exact else min(facts.lists, max(facts.candidates, holding))
            return index, faiss.SearchParametersIVF(sel=selector, nprobe=probed)
        if not is_exact:
            return index, faiss.SearchParametersHNSW(sel=selector, efSearch=max(facts.candidates, depth))
        storage = index if facts.kind == "exact" else faiss.downcast_index(index.storage)
        return storage, faiss.SearchParameters(sel=selector)


@dataclass(frozen=True)
class GalleryIndex:
    """The indices of a gallery's images and captions."""

    images: ItemIndex
    captions: ItemIndex

    @classmethod
    def build(
        cls,
        images_BKD: Tensor,
        texts_CD: Tensor,
        biases: Biases | None = None,
        compression: str = "",
        bank: Correction | None = None,
    ) -> Self:
        """Index a gallery: exact up to 50,000 vectors (200,000 of images without captions), approximate beyond.

        The bank of the model's training is what a compression is fitted to, and what measures the index of images
        without captions. Without a bank these are the gallery itself.
        """
        of_images_B, of_texts_C = biases or (None, None)
        images, texts = Sample(images_BKD, "the images"), Sample(texts_CD.unsqueeze(1), "the captions")
        queries, is_alone = texts, not len(texts_CD)
        if is_alone:
            own = images._replace(name="the images themselves")
            queries = own if bank is None else Sample(bank.texts_MD.unsqueeze(1), "captions of training")
        fitted = _fitted(images_BKD, texts_CD, bank) if compression else None
        kinds = _kind(images_BKD, is_alone), _kind(texts.vectors_NVD)
        return cls(
            ItemIndex.build(images_BKD, queries, kinds[0], of_images_B, compression, fitted),
            ItemIndex.build(texts.vectors_NVD, images, kinds[1], of_texts_C, compression, fitted),
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


def _kind(items_BKD: Tensor, is_alone: bool = False) -> Kind:
    most = _EXACT_IMAGES if is_alone else _EXACT_VECTORS
    return "exact" if items_BKD.shape[0] * items_BKD.shape[1] <= most else "approximate"


def _fit_transform(
    compression: Compression, vectors_ND: npt.NDArray[np.float32], is_corrected: bool
) -> faiss.VectorTransform | None:
    """Fit what turns vectors (N, D), or (N, D + 1) if hubs are corrected, into those that are kept; None: nothing.

    Dimensions are the principal components of a sample of vectors around the origin, so that inner products stay; they
    are orthogonal also if the sample has fewer dimensions, as of duplicates. The dimension of hub correction passes as
    it is. Zeros fill up to a multiple of 16. Raises ValueError if the sample is too small, or its vectors too short.
    """
    dim = vectors_ND.shape[1]
    compression.require(len(vectors_ND), dim)
    if compression.width is None:
        aligned = _aligned(dim + is_corrected)
        if compression.number == "float32" or aligned == dim + is_corrected:
            return None
        return faiss.RemapDimensionsTransform(dim + is_corrected, aligned, False)
    components = compression.width - is_corrected
    _, principal_DD = np.linalg.eigh((vectors_ND.T @ vectors_ND).astype(np.float64))  # the largest come last
    matrix = np.zeros((_aligned(compression.width), dim + is_corrected), np.float32)
    matrix[:components, :dim] = principal_DD[:, -components:].T
    if is_corrected:
        matrix[components, dim] = 1
    transform = faiss.LinearTransform(dim + is_corrected, len(matrix), False)
    faiss.copy_array_to_vector(matrix.ravel(), transform.A)
    transform.is_trained = True
    return transform


def _aligned(dim: int) -> int:
    return -(-dim // _ALIGNED) * _ALIGNED


def _fitted(images_BKD: Tensor, texts_CD: Tensor, bank: Correction | None) -> Sample:
    """Return the vectors that a compression is fitted to: those of the bank, or else of the gallery."""
    if bank is not None:
        name = f"{len(bank.images_MKD):,} images and {len(bank.texts_MD):,} captions of training"
        images_BKD, texts_CD = bank.images_MKD, bank.texts_MD
    elif not len(texts_CD):
        return Sample(images_BKD, "the images themselves")
    else:
        name = f"the {len(texts_CD):,} captions and their images"
    return Sample(torch.cat([images_BKD.flatten(0, 1), texts_CD]).unsqueeze(1), name)


def _has_transform(index: faiss.Index) -> bool:
    return isinstance(index, faiss.IndexPreTransform)


def _vectors(items_BKD: Tensor) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(items_BKD.flatten(0, 1).float().cpu().numpy())


def _some(vectors: Rows, most: int) -> Rows:
    """Return rows evenly spread over all, at most a given number."""
    return vectors[:: max(1, -(-len(vectors) // most))]


def _overlap(found: Sequence[np.ndarray], true_Qk: Sequence[np.ndarray]) -> float:
    """Return the share of the true items that are found."""
    hits = sum(len(np.intersect1d(*pair)) for pair in zip(found, true_Qk, strict=True))
    return hits / sum(map(len, true_Qk))


def _best_of_views(scores: np.ndarray, vectors: np.ndarray, views: int, k: int) -> Found:
    """Return the k best items among the vectors found by the views of one query, each item by its best vector."""
    order = np.argsort(-scores, kind="stable")
    order = order[vectors[order] >= 0]  # FAISS fills up with -1 if the graph, or the lists, lead to fewer
    items = vectors[order] // views
    first = np.sort(np.unique(items, return_index=True)[1])[:k]
    return Found(scores[order[first]], items[first])
