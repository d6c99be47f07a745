"""Images loaded in threads, in order, each within a time limit."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from multiprocessing import TimeoutError as NotReadyError
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, TypeVar

from preprocessing.features.images import ImageError, TemporaryImageError

ItemT = TypeVar("ItemT")


def load_images(
    load: Callable[[str], Any],
    items: Iterable[ItemT],
    uri: Callable[[ItemT], str],
    threads: int,
    depth: int,
    timeout: float | None,
) -> Generator[tuple[ItemT, Any], None, None]:
    """Yield items in order, each with its image, loaded `depth` items in advance, or the ImageError that it ended in.

    An image that is waited for longer than `timeout` seconds (None: for ever) becomes an error, and its thread, which
    nothing can stop, is abandoned: new threads load the images after it. It does not delay the end of the process.
    """
    # Unlike those of other pools, its threads do not delay the end of the process.
    pool, waiting = ThreadPool(threads), iter(items)
    pending: deque[tuple[ItemT, AsyncResult[Any]]] = deque()
    try:
        while True:
            for item in islice(waiting, depth + 1 - len(pending)):
                pending.append((item, pool.apply_async(load, (uri(item),))))
            if not pending:
                return
            item, loading = pending.popleft()
            try:
                image = loading.get(timeout)
            except ImageError as error:
                image = error
            except NotReadyError:
                image = TemporaryImageError(f"took longer than {timeout:g} seconds to load")
                # Its threads are abandoned; the pending images that they have not finished start again.
                pool.terminate()
                pool = ThreadPool(threads)
                for place, (other, unfinished) in enumerate(pending):
                    if not unfinished.ready():
                        pending[place] = (other, pool.apply_async(load, (uri(other),)))
            yield item, image
    finally:
        pool.terminate()
