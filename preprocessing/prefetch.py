"""Prefetch the items of an iterator in a background thread."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")

_END: Any = object()


def prefetch(items: Iterator[Item], depth: int) -> Generator[Item, None, None]:
    """Yield the items in order while up to ``depth`` of those that follow are made, and one further in preparation.

    The thread starts at the first item asked for and has ended when the generator is exhausted, closed or has raised. A
    thread and not a process: the work is copying in numpy, which lets other threads run, and batches need no
    serialisation. What ``items`` raises is raised here, once the items before it have been yielded.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        pending: deque[Future[Item]] = deque(thread.submit(next, items, _END) for _ in range(depth + 1))
        try:
            while (item := pending.popleft().result()) is not _END:
                pending.append(thread.submit(next, items, _END))
                yield item
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
