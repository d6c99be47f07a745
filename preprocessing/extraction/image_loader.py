"""Images loaded in threads, in order, each within a time limit."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError as NotReadyError
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Self, TypeVar

from preprocessing.features.images import ImageError, TemporaryImageError

ItemT = TypeVar("ItemT")


class ImageLoader:
    """Loads images in threads, `depth` of them in advance.

    An image that is waited for longer than `timeout` seconds (None: for ever) becomes an error, and its thread, which
    nothing can stop, is abandoned: new threads load the images after it. It does not delay the end of the process.
    """

    def __init__(self, load: Callable[[str], Any], threads: int, depth: int, timeout: float | None) -> None:
        self._load, self._threads, self._depth, self._timeout = load, threads, depth, timeout
        # Unlike those of other pools, its threads do not delay the end of the process.
        self._pool = ThreadPool(threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.terminate()

    def load(self, items: Iterable[ItemT], uri: Callable[[ItemT], str]) -> Iterator[tuple[ItemT, Any]]:
        """Yield items in order, each with its loaded image, or with the ImageError that it ended in."""
        pending: deque[tuple[ItemT, AsyncResult[Any]]] = deque()
        for item in items:
            pending.append((item, self._pool.apply_async(self._load, (uri(item),))))
            if len(pending) > self._depth:
                yield self._first(pending, uri)
        while pending:
            yield self._first(pending, uri)

    def _first(
        self, pending: deque[tuple[ItemT, AsyncResult[Any]]], uri: Callable[[ItemT], str]
    ) -> tuple[ItemT, Any | ImageError]:
        item, loading = pending.popleft()
        try:
            return item, loading.get(self._timeout)
        except ImageError as error:
            return item, error
        except NotReadyError:
            # Its threads are abandoned; the pending images that they have not finished start again.
            self._pool.terminate()
            self._pool = ThreadPool(self._threads)
            for place, (other, unfinished) in enumerate(pending):
                if not unfinished.ready():
                    pending[place] = (other, self._pool.apply_async(self._load, (uri(other),)))
            return item, TemporaryImageError(f"took longer than {self._timeout:g} seconds to load")
