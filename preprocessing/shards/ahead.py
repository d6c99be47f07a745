"""An iterator that works ahead of its consumer, in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")

_LOOK_AGAIN_S = 0.5


class _End:
    """What stands in the queue after the last item."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[ItemT], depth: int) -> Iterator[ItemT]:
    """Yield items in order while a thread makes up to `depth` of those that follow.

    An error of the items is raised where it comes in their order. A consumer that stops early stops the thread, after
    the item that it is at.

    Args:
        items: made by the thread, one after another.
        depth: items made and not yet taken, at least 1.
    """
    made: queue.Queue[ItemT | _End] = queue.Queue(depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_make, args=(items, made, stopped), daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()


def _make(items: Iterator[ItemT], made: queue.Queue[ItemT | _End], stopped: threading.Event) -> None:
    error = None
    try:
        for item in items:
            _put(item, made, stopped)
            if stopped.is_set():
                return
    except BaseException as raised:  # noqa: BLE001 (handed on to the consumer)
        error = raised
    _put(_End(error), made, stopped)


def _put(item: ItemT | _End, made: queue.Queue[ItemT | _End], stopped: threading.Event) -> None:
    """Wait for room, unless nobody takes anything any more."""
    while not stopped.is_set():
        try:
            made.put(item, timeout=_LOOK_AGAIN_S)
        except queue.Full:
            continue
        return
