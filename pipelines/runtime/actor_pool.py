"""Work spread over a pool of Ray actors: items are drawn lazily, and an actor that dies is replaced."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from pipelines.runtime.stage import StageError

log = logging.getLogger(__name__)

MOST_DEATHS = 3
_PREPARATION = object()
_NO_ITEM = object()

Item = TypeVar("Item")


class Actor(Protocol):
    """The interface of an actor of the pool: methods of a Ray actor, called with `.remote`."""

    prepare: Any
    """Done once, before any item: loading weights."""
    work: Any
    """Takes an item, returns something small."""


def again_unchanged(item: Item, deaths: int) -> Item | None:
    """Repeat an item until three actors have died of it."""
    return item if deaths < MOST_DEATHS else None


def map_unordered(
    start: Callable[[], Actor],
    actors: int,
    items: Iterable[Item],
    describe: Callable[[Item], str],
    retry: Callable[[Item, int], Item | None] = again_unchanged,
) -> Iterator[Any]:
    """Yield what `work` returns for each item, in the order in which the actors finish.

    An item is drawn when an actor is free for it, so `items` may be a generator over more than fits in memory. Actors
    that the cluster has no room for yet join later.

    `describe` names an item in messages. `retry` gives what is done instead of an item of which a number of actors have
    died; None ends the work. Raises StageError where actors died of an item that `retry` gives up, or three of the
    preparation; else what `prepare` or `work` raised.
    """
    running: dict[Any, tuple[Actor, Any]] = {}
    idle: list[Actor] = []
    again: list[Item] = []
    deaths: Counter[str] = Counter()
    remaining = iter(items)
    exhausted = False

    def begin() -> None:
        actor = start()
        running[actor.prepare.remote()] = (actor, _PREPARATION)

    try:
        for _ in range(actors):
            begin()
        while True:
            while idle and not (exhausted and not again):
                item = again.pop() if again else next(remaining, _NO_ITEM)
                if item is _NO_ITEM:
                    exhausted = True
                else:
                    actor = idle.pop()
                    running[actor.work.remote(item)] = (actor, item)
            if exhausted and not again and all(item is _PREPARATION for _, item in running.values()):
                return
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            actor, item = running.pop(ready)
            try:
                result = ray.get(ready)
            except (RayActorError, OutOfMemoryError) as error:
                what = "starting an actor" if item is _PREPARATION else describe(item)
                deaths[what] += 1
                following = (again_unchanged if item is _PREPARATION else retry)(item, deaths[what])
                reason = " ".join(str(error).split())
                if following is None:
                    raise StageError(
                        f"{what}: the process that did it has died {deaths[what]} times, the last time because: "
                        f"{reason}. "
                        "If memory ran out, lower the batch size or the number of actors"
                    ) from error
                log.warning("%s: the process that did it has died and is replaced: %s", what, reason[:300])
                if item is not _PREPARATION:
                    again.append(following)
                begin()
            except RayTaskError as error:
                raise error.cause from error
            else:
                idle.append(actor)
                if item is not _PREPARATION:
                    yield result
    finally:
        for actor in [*idle, *(actor for actor, _ in running.values())]:
            ray.kill(actor)
