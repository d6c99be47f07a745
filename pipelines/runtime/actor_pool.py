"""Work spread over a pool of Ray actors: items are drawn lazily, and an actor that dies is replaced."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from pipelines.runtime.stage import StageError

log = logging.getLogger(__name__)

MOST_DEATHS = 3
_PREPARATION = "starting an actor"

Item = TypeVar("Item")


@dataclass(eq=False)
class _Worker:
    """An actor, the number of its unfinished calls, and whether it can take an item, even during another."""

    actor: Any
    calls: int = 0
    is_ready: bool = False


@dataclass(frozen=True)
class _Call(Generic[Item]):
    """A call that a worker is at; without an item it is the preparation. A retried item has the worker to itself."""

    worker: _Worker
    item: Item | None = None
    is_retried: bool = False


class ActorPool(Generic[Item]):
    """A number of actors that do the same with each of many items.

    An item is drawn when an actor is free for it, so `items` may be a generator over more than fits in memory. Actors
    that the cluster has no room for yet join later. An item that an actor has died of has the next actor to itself, so
    that an item which was only there at the same time is not blamed twice.

    Args:
        start: starts an actor of Ray. Its `prepare` is called once, before any item, to load weights; its `work` takes
            an item and returns something small, or yields None when it can take another item meanwhile, and then that.
        size: number of actors.
        items: what is to be done.
        describe: names an item in messages.
        retry: gives what is done instead of an item of which a number of actors have died; None ends the work. By
            default the item is repeated until three have.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        size: int,
        items: Iterable[Item],
        describe: Callable[[Item], str],
        retry: Callable[[Item, int], Item | None] = lambda item, deaths: item if deaths < MOST_DEATHS else None,
    ) -> None:
        self._start, self._size, self._describe, self._retry = start, size, describe, retry
        self._items = iter(items)
        self._is_exhausted = False
        self._again: list[Item] = []
        self._deaths: Counter[str] = Counter()
        self._workers: list[_Worker] = []
        self._calls: dict[Any, _Call[Item]] = {}

    def results(self) -> Iterator[Any]:
        """Yield what `work` returns for each item, in the order in which the actors finish; the actors end with it.

        Raises StageError if actors died of an item that `retry` gives up, or three of the preparation; else what
        `prepare` or `work` raised.
        """
        try:
            for _ in range(self._size):
                self._add_worker()
            while True:
                self._hand_out_items()
                if self._is_exhausted and not self._again and all(call.item is None for call in self._calls.values()):
                    return
                yield from self._await_one()
        finally:
            for worker in self._workers:
                ray.kill(worker.actor)

    def _add_worker(self) -> None:
        worker = _Worker(self._start())
        self._workers.append(worker)
        self._begin(worker.actor.prepare.remote(), _Call(worker))

    def _begin(self, reference: Any, call: _Call[Item]) -> None:
        self._calls[reference] = call
        call.worker.calls += 1

    def _hand_out_items(self) -> None:
        """Give items to workers until there is no worker for the next one, or no item."""
        while worker := self._worker_for_next():
            is_retried = bool(self._again)
            item = self._again.pop() if is_retried else next(self._items, None)
            if item is None:
                self._is_exhausted = True
                return
            worker.is_ready = False
            self._begin(worker.actor.work.remote(item), _Call(worker, item, is_retried))

    def _worker_for_next(self) -> _Worker | None:
        """Return a worker for the next item, rather one that is at no other; None if there is none."""
        ready = sorted((worker for worker in self._workers if worker.is_ready), key=lambda worker: worker.calls)
        return ready[0] if ready and not (self._again and ready[0].calls) else None

    def _await_one(self) -> Iterator[Any]:
        """Wait until one of the calls has something, and yield it if that is the result of an item."""
        (reference, *_), _ = ray.wait(list(self._calls), num_returns=1)
        call = self._calls.pop(reference)
        call.worker.calls -= 1
        is_stream = isinstance(reference, ray.ObjectRefGenerator)
        try:
            result = ray.get(next(reference) if is_stream else reference)
        except (RayActorError, OutOfMemoryError) as error:
            self._replace(call, error)
            return
        except RayTaskError as error:
            raise error.cause from error
        is_unfinished = is_stream and result is None
        if is_unfinished:
            self._begin(reference, call)
        if call.worker.calls == 0 or (is_unfinished and not call.is_retried):
            call.worker.is_ready = True
        if call.item is not None and not is_unfinished:
            yield result

    def _replace(self, call: _Call[Item], error: Exception) -> None:
        """Start another worker instead of a dead one, and do its item again."""
        what = _PREPARATION if call.item is None else self._describe(call.item)
        self._deaths[what] += 1
        deaths = self._deaths[what]
        reason = " ".join(str(error).split())
        following = None if call.item is None else self._retry(call.item, deaths)
        if following is None and (call.item is not None or deaths == MOST_DEATHS):
            raise StageError(
                f"{what}: the process that did it has died {deaths} times, the last time because: {reason}. "
                "If memory ran out, lower the batch size or the number of actors"
            ) from error
        log.warning("%s: the process that did it has died and is replaced: %s", what, reason[:300])
        if following is not None:
            self._again.append(following)
        if call.worker in self._workers:  # its other calls fail as well
            self._workers.remove(call.worker)
            self._add_worker()
