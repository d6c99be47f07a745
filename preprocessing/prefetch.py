"""Run what makes items ahead of their consumer in background threads."""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

Item = TypeVar("Item")

_END: Any = object()


def prefetch(items: Iterator[Item], depth: int) -> Generator[Item, None, None]:
    """Yield the items in order while up to ``depth`` of those that follow are made, and one further in preparation.

    One thread makes them; see :func:`prefetch_calls`. What ``items`` raises is raised here, once the items before it
    have been yielded.
    """
    with closing(prefetch_calls(itertools.repeat(partial(next, items, _END)), depth)) as made:
        yield from itertools.takewhile(lambda item: item is not _END, made)


def prefetch_calls(calls: Iterable[Callable[[], Item]], depth: int, threads: int = 1) -> Generator[Item, None, None]:
    """Yield what the calls return in order while up to ``depth`` of those that follow are done, ``threads`` at work.

    The threads start at the first item asked for and have ended when the generator is exhausted, closed or has raised.
    Threads and not processes: the work is copying in numpy, which lets other threads run, and batches need no
    serialisation. What a call raises is raised here, once the items before it have been yielded.
    """
    with ThreadPoolExecutor(threads, "prefetch") as pool:
        waiting = iter(calls)
        pending = deque(pool.submit(call) for call in itertools.islice(waiting, depth + threads))
        try:
            while pending:
                item = pending.popleft().result()
                pending.extend(pool.submit(call) for call in itertools.islice(waiting, 1))
                yield item
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
