"""Images loaded ahead in threads, in order; none of them holds up the others for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError as NotReadyError
from multiprocessing.pool import AsyncResult, ThreadPool
from types import TracebackType
from typing import Any, TypeVar

from preprocessing.features.images import ImageError

ItemT = TypeVar("ItemT")


class ImageLoader:
    """Loads images in threads, `depth` of them ahead of the one that is wanted.

    An image that is waited for longer than `timeout` becomes an error, and its thread, which nothing can stop, is left
    to itself: fresh threads go on with the images after it. It does not hold up the end of the process either.

    Args:
        load: what a thread does with an image's URI; raises ImageError where it cannot be used.
        threads: at work at once.
        depth: images ahead.
        timeout: in seconds; None waits for ever.
    """

    def __init__(self, load: Callable[[str], Any], threads: int, depth: int, timeout: float | None) -> None:
        self._load, self._threads, self._depth, self._timeout = load, threads, depth, timeout
        # Of all pools the one whose threads a process does not wait for when it ends.
        self._pool = ThreadPool(threads)

    def __enter__(self) -> ImageLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.terminate()

    def load(self, items: Iterable[ItemT], uri: Callable[[ItemT], str]) -> Iterator[tuple[ItemT, Any]]:
        """Yield items in order, each with what `load` made of its URI, or with the ImageError that it ended in."""
        ahead: deque[tuple[ItemT, AsyncResult[Any]]] = deque()
        for item in items:
            ahead.append((item, self._begin(uri(item))))
            if len(ahead) > self._depth:
                yield self._first(ahead, uri)
        while ahead:
            yield self._first(ahead, uri)

    def _begin(self, uri: str) -> AsyncResult[Any]:
        return self._pool.apply_async(self._load, (uri,))

    def _first(
        self, ahead: deque[tuple[ItemT, AsyncResult[Any]]], uri: Callable[[ItemT], str]
    ) -> tuple[ItemT, Any | ImageError]:
        item, loading = ahead.popleft()
        try:
            return item, loading.get(self._timeout)
        except ImageError as error:
            return item, error
        except NotReadyError:
            self._restart(ahead, uri)
            return item, ImageError(f"took longer than {self._timeout:g} seconds to load")

    def _restart(self, ahead: deque[tuple[ItemT, AsyncResult[Any]]], uri: Callable[[ItemT], str]) -> None:
        """Leave the threads to themselves; the images ahead that they have not finished begin anew."""
        self._pool.terminate()
        self._pool = ThreadPool(self._threads)
        for place, (item, loading) in enumerate(ahead):
            if not loading.ready():
                ahead[place] = (item, self._begin(uri(item)))
