"""A replica of the model: it answers the searches that wait at the same time together, and decodes images meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pipelines.retrieval.options import Target
from pipelines.retrieval.search_model import load_search_model
from pipelines.serving import limits
from pipelines.serving.request_error import RequestError
from pipelines.serving.service import Answer, Search, SearchService

Result = TypeVar("Result")


class SearchReplica:
    """A model (NAME/VERSION, or the directory of a bundle or gallery) that answers requests."""

    def __init__(self, model: str, tracking_uri: str) -> None:
        self._service = SearchService(load_search_model(model, tracking_uri))
        self._service.warm_up()
        # torch uses all cores in one thread, and the parser is not thread-safe.
        self._searching = ThreadPoolExecutor(1)
        self._decoding = ThreadPoolExecutor(2)
        self._texts = _Together(self._searching, lambda queries: self._service.search_texts(queries))
        self._images = _Together(self._searching, lambda queries: self._service.search_images(queries))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of this replica by its name; a refusal is returned, as Ray Serve would log an error."""
        try:
            return await getattr(self, method)(*arguments)
        except RequestError as refusal:
            return refusal

    async def facts(self) -> dict[str, Any]:
        """Describe the model."""
        return self._service.facts()

    async def search_text(self, text: str, k: int, target: Target) -> Answer:
        """Search with a text, together with the other texts that wait."""
        return await self._texts.answer(Search(text, k, target))

    async def search_image(self, data: bytes, kind: str, k: int, target: Target | None) -> Answer:
        """Search with an image file of a content type, together with the other images that wait."""
        decoded = await _in_thread(self._decoding, self._service.decode, data, kind)
        return await self._images.answer(Search(decoded, k, target))

    async def image(self, image_id: str) -> bytes:
        """Return an image of the gallery as a JPEG."""
        return await _in_thread(self._decoding, self._service.image, image_id)

    async def relevance(self, text: str, image_id: str) -> dict[str, Any]:
        """Locate the parts of a text in an image of the gallery."""
        return await _in_thread(self._searching, self._service.relevance, text, image_id)


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
