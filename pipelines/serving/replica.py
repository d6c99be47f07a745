"""A replica of the model: it answers the searches that wait at the same time together, and decodes images meanwhile.

Q queries, N regions of an image, V views, D embedding.
"""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from torch import Tensor

from pipelines.inference.embedder import QueryError
from pipelines.registry.in_use import in_use
from pipelines.retrieval.filters import column_types
from pipelines.retrieval.gallery_storage import mirror_of
from pipelines.retrieval.hits import Hit
from pipelines.retrieval.options import Kind, Target
from pipelines.retrieval.search_model import SearchError, load_search_model
from pipelines.serving import limits
from pipelines.serving.request_error import RequestError
from preprocessing.features.images import ImageError, image_bytes, load_image, probe_image, thumbnail
from preprocessing.storage.base import StorageError
from vse_core.evaluation.unified import relevance

Result = TypeVar("Result")

# Content type -> Pillow's name, of the formats of browsers and cameras.
IMAGE_TYPES = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP", "image/gif": "GIF"}

_IMAGES_CACHED = 512  # of about 30 kB

# Without the reason, which may name a path or an address.
_UNREADABLE = "the image of this id cannot be read on this machine"

Answer = dict[str, Any] | RequestError


class Search(NamedTuple):
    """A search for the k nearest images or captions; without a target an image finds captions, if there are any."""

    query: Any
    k: int
    target: Target | None = None
    min_confidence: float = 0
    where: str = ""


class SearchReplica:
    """A model (NAME/VERSION, or the directory of a bundle or gallery) that answers requests."""

    def __init__(self, model: str, tracking_uri: str) -> None:
        self._model = load_search_model(model, tracking_uri)
        self._use = in_use(self._model.name, tracking_uri)
        self._use.__enter__()  # until this object goes: its version is not pruned
        self._name = _public(self._model.name)
        own = self._model.state
        self._served = {"model": self._name, "gallery": "", "gallery_version": ""}
        if own is not None:
            self._served = {"model": _public(own["model"]), "gallery": self._name, "gallery_version": own["current"]}
            self._name = f"{self._name}/{own['current']}"
        self._places = {record.image_id: place for place, record in enumerate(self._model.gallery.records)}
        # Weak: one that was replaced frees its model at once, and not when Python next looks for cycles.
        this = weakref.proxy(self)
        self._cached_image = lru_cache(_IMAGES_CACHED)(lambda *wanted: this._image(*wanted))
        # What is loaded when it is asked for is loaded now, or the first client would wait.
        _ = self._model.embedder.model, self._model.embedder.takes_images
        self._model.answer("a photograph", "text", 1, "images")
        # torch uses all cores in one thread, and the parser is not thread-safe.
        self._searching = ThreadPoolExecutor(1)
        self._decoding = ThreadPoolExecutor(2)
        self._texts = _Together(self._searching, lambda queries: this._search_texts(queries))
        self._images = _Together(self._searching, lambda queries: this._search_images(queries))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of this replica by its name; a refusal is returned, as Ray Serve would log an error."""
        try:
            return await getattr(self, method)(*arguments)
        except RequestError as refusal:
            return refusal

    async def served(self) -> dict[str, str]:
        """Return the model, and the gallery and its version if it is one's own."""
        return self._served

    async def facts(self) -> dict[str, Any]:
        """Return a description of the model for clients, and the limits of their queries."""
        gallery, embedder = self._model.gallery, self._model.embedder
        return {
            "model": self._name,
            "images": len(gallery.records),
            "captions": len(gallery.captions),
            "takes_images": embedder.takes_images,
            "finds_regions": embedder.finds_regions,
            "max_results": limits.MAX_RESULTS,
            "max_text": limits.MAX_TEXT,
            "max_image_bytes": limits.MAX_IMAGE_BYTES,
            "image_types": list(IMAGE_TYPES),
            "columns": column_types(gallery.metadata),
        }

    async def search_text(
        self, text: str, k: int, target: Target, min_confidence: float = 0, where: str = ""
    ) -> Answer:
        """Search with a text, together with the other texts that wait."""
        return await self._texts.answer(Search(text, k, target, min_confidence, where))

    async def search_texts(self, texts: Sequence[str], *wanted: Any) -> list[dict[str, Any]]:
        """Search with each of several texts; what `search_text` takes besides one is the same for all."""
        answers = await asyncio.gather(*(self.search_text(text, *wanted) for text in texts))
        return [{"error": each.message} if isinstance(each, RequestError) else each for each in answers]

    async def search_like(self, image_id: str, k: int, where: str = "") -> Answer:
        """Search for the images nearest to one of the gallery, without itself."""
        return await _in_thread(self._searching, self._search_like, image_id, k, where)

    async def search_image(
        self, data: bytes, kind: str | None, k: int, target: Target | None, min_confidence: float = 0, where: str = ""
    ) -> Answer:
        """Search with an image file, of a content type if it has one, together with the other images that wait."""
        decoded = await _in_thread(self._decoding, self._decode, data, kind)
        return await self._images.answer(Search(decoded, k, target, min_confidence, where))

    async def image(self, image_id: str, is_full: bool = False) -> bytes:
        """Return an image of the gallery as a JPEG without its file's metadata, of at most 480 pixels a side or all."""
        read = self._image if is_full else self._cached_image
        return await _in_thread(self._decoding, read, image_id, is_full)

    async def relevance(self, text: str, image_id: str) -> dict[str, Any]:
        """Locate the objects, attributes and relations of a text in an image of the gallery (UniVSE, section 4.3).

        Returns rows and columns of the grid, and for each phrase its words, its similarity with the image and the
        relevance of each cell, row by row, with a mean of 1.
        """
        return await _in_thread(self._searching, self._relevance, text, image_id)

    def _search_texts(self, queries: Sequence[Search]) -> list[Answer]:
        """Search with several texts at once; the answer to a text that the model cannot read is its refusal."""
        try:
            queries_QVD = self._model.embed([search.query for search in queries], "text")
        except QueryError as error:
            if len(queries) == 1:
                return [RequestError(422, f"text: {error.reason}")]
            return [answer for search in queries for answer in self._search_texts([search])]
        return self._found(queries_QVD, "text", queries)

    def _search_like(self, image_id: str, k: int, where: str) -> Answer:
        (answer,) = self._found(
            self._model.embed_own(self._place(image_id)), "image", [Search(image_id, k + 1, "images", where=where)]
        )
        if isinstance(answer, dict):
            others = [result for result in answer["results"] if result["id"] != image_id]
            answer |= {"results": others[:k], "warning": ""}
        return answer

    def _decode(self, data: bytes, content_type: str | None) -> Any:
        """Return an image file, whose content type the client may have given, as `_search_images` takes it."""
        if not self._model.embedder.takes_images:
            raise RequestError(409, "this model needs features that were computed elsewhere: search with a text")
        _check_image(data, content_type)
        try:
            return self._model.embedder.decode(data)
        except ImageError as error:
            raise RequestError(422, f"image: {error}") from error

    def _search_images(self, queries: Sequence[Search]) -> list[Answer]:
        """Search with several images at once, which `_decode` has returned."""
        return self._found(self._model.embedder.embed_decoded([search.query for search in queries]), "image", queries)

    def _relevance(self, text: str, image_id: str) -> dict[str, Any]:
        embedder, uri = self._model.embedder, self._uri(image_id)
        components = embedder.texts.components
        if components is None or not embedder.finds_regions:
            raise RequestError(409, "this model does not embed regions of images: it has no relevance maps")
        phrases = components.phrases(text)
        if not phrases:
            raise RequestError(422, "text: names nothing that the model knows")
        try:
            regions = embedder.embed_with_regions(uri)
        except QueryError as error:
            raise RequestError(404, _UNREADABLE) from error
        except ValueError as error:
            raise RequestError(409, f"{error}: it has no relevance maps") from error
        if not isinstance(regions.places, tuple):
            raise RequestError(409, "the regions of this model's features are not a grid: it has no relevance maps")
        rows, columns = regions.places
        queries_QD = components.embed_phrases(phrases)
        maps_QN = relevance(queries_QD, regions.of_view(0)) * rows * columns
        similarities_Q = queries_QD @ regions.image_KD[0]
        answers = zip(phrases, similarities_Q.tolist(), maps_QN.round(decimals=3).tolist(), strict=True)
        found = [
            {"text": " ".join(phrase), "similarity": round(similarity, 4), "cells": cells}
            for phrase, similarity, cells in answers
        ]
        return {"rows": rows, "columns": columns, "phrases": found}

    def _found(self, queries_QVD: Tensor, kind: Kind, queries: Sequence[Search]) -> list[Answer]:
        found: list[Answer] = []
        warnings = self._model.warnings([search.query for search in queries], queries_QVD, kind)
        for query_1VD, query, warning in zip(queries_QVD.split(1), queries, warnings, strict=True):
            try:
                target = self._model.target_of("image", query.target)
                (hits,) = self._model.find(query_1VD, kind, query.k, target, query.min_confidence, query.where)
            except SearchError as error:
                found.append(RequestError(422, str(error)))
                continue
            shown = [_shown(hit) for hit in hits]
            found.append({"model": self._name, "target": target, "warning": warning, "results": shown})
        return found

    def _place(self, image_id: str) -> int:
        # A client reaches files by ids of the gallery only.
        if image_id not in self._places:
            raise RequestError(404, "the gallery has no image of this id")
        return self._places[image_id]

    def _uri(self, image_id: str) -> str:
        return self._model.gallery.records[self._place(image_id)].image_uri

    def _image(self, image_id: str, is_full: bool = False) -> bytes:
        uri = self._uri(image_id)
        if not is_full:
            with suppress(KeyError, OSError, StorageError):  # a model's gallery keeps none, one's own may have lost it
                file = self._model.thumbnails[image_id]
                if not file.is_file():
                    mirror_of(file.parents[2]).pull_file(file)
                return file.read_bytes()
        try:
            image = load_image(uri)
            return image_bytes(image, "JPEG", quality=90) if is_full else thumbnail(image)
        except (ImageError, StorageError) as error:
            shown = "; this is the gallery's thumbnail of it" if is_full and image_id in self._model.thumbnails else ""
            raise RequestError(404, f"{_UNREADABLE}{shown}") from error


def _public(name: str) -> str:
    """Return the name of a model, or of a model that is a folder, whose path is not for clients, the folder's."""
    return Path(name).name if Path(name).is_dir() else name


class _Together:
    """Passes the queries that wait at the same time to one call of `search`, in a thread."""

    def __init__(self, threads: ThreadPoolExecutor, search: Callable[[Sequence[Search]], list[Answer]]) -> None:
        self._threads = threads
        self._search = search
        self._waiting: list[tuple[Search, asyncio.Future[Answer]]] = []
        self._work: asyncio.Task[None] | None = None

    async def answer(self, query: Search) -> Answer:
        """Return the answer to a query."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((query, answer))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        await asyncio.sleep(limits.BATCH_SECONDS)
        while self._waiting:
            batch, self._waiting = self._waiting[: limits.PER_REPLICA], self._waiting[limits.PER_REPLICA :]
            try:
                answers = await _in_thread(self._threads, self._search, [query for query, _ in batch])
            except Exception as error:  # noqa: BLE001 (each of the requests reports it)
                for _, waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for (_, waiting), answer in zip(batch, answers, strict=True):
                    if not waiting.done():  # its client is gone
                        waiting.set_result(answer)


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)


def _check_image(data: bytes, content_type: str | None) -> None:
    """Refuse bytes that are not an image, or a too large one, before any pixel is decoded."""
    try:
        kind, width, height = probe_image(data, tuple(IMAGE_TYPES.values()))
    except ImageError as error:
        raise RequestError(422, f"image: {error}") from error
    if content_type is not None and IMAGE_TYPES[content_type] != kind:
        raise RequestError(415, f"image: it is said to be {content_type}, and is {kind}")
    size = f"{width} x {height} pixels"
    if width * height > limits.MAX_IMAGE_PIXELS:
        raise RequestError(413, f"image: {size}, more than {limits.MAX_IMAGE_PIXELS:,}")
    if not width * height or max(width, height) > limits.MAX_ASPECT * min(width, height):
        raise RequestError(422, f"image: {size}; one side may be {limits.MAX_ASPECT} times the other")


def _shown(hit: Hit) -> dict[str, Any]:
    """Return a result for clients: with its id, not its path."""
    shown: dict[str, Any] = {"id": hit.item_id, "similarity": round(hit.similarity, 4), "caption": hit.caption}
    if hit.confidence is not None:
        shown["confidence"] = round(hit.confidence, 4)
    if hit.columns:
        shown["columns"] = dict(hit.columns)
    if hit.image_uri is not None:
        shown["image_url"] = f"/images/{quote(hit.item_id, safe='')}"
    return shown
