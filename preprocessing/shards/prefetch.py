"""Run an iterator ahead of its consumer in a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Ready(Generic[Item]):
    item: Item


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None


def prefetched(items: Iterator[Item], depth: int) -> Generator[Item, None, None]:
    """Yield the items, with up to ``depth`` of them prepared ahead.

    The thread starts at the first item asked for and has ended when the generator is exhausted, closed or has raised. A
    thread and not a process: the work is copying in numpy, which lets other threads run, and batches need no
    serialisation.

    Args:
        items: what to run ahead; used in the background thread only.
        depth: at least 1; one further item may be in preparation.

    Raises:
        Exception: whatever ``items`` raises, once the items before it have been yielded.
    """
    ready: queue.Queue[_Ready[Item] | _Ended] = queue.Queue(depth)
    stopped = threading.Event()
    producer = threading.Thread(target=_produce, args=(items, ready, stopped), name="prefetch", daemon=True)
    producer.start()
    try:
        while isinstance(got := ready.get(), _Ready):
            yield got.item
        if got.error is not None:
            raise got.error
    finally:
        stopped.set()
        # The producer puts at most once more before it sees the flag, and after this there is room for that.
        while not ready.empty():
            ready.get_nowait()
        producer.join()


def _produce(items: Iterator[Item], ready: queue.Queue[_Ready[Item] | _Ended], stopped: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            ready.put(_Ready(item))
            if stopped.is_set():
                return
    except BaseException as caught:  # noqa: BLE001 - the consumer raises it, and must not wait for ever
        error = caught
    ready.put(_Ended(error))
