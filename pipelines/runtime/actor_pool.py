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
    """Takes an item, returns something small; or yields None once it can take another item meanwhile, and then that."""


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
    that the cluster has no room for yet join later. An item that an actor has died of has the next actor to itself, so
    that an item which was only there at the same time is not blamed twice.

    `describe` names an item in messages. `retry` gives what is done instead of an item of which a number of actors have
    died; None ends the work. Raises StageError where actors died of an item that `retry` gives up, or three of the
    preparation; else what `prepare` or `work` raised.
    """
    running: dict[Any, tuple[Actor, Any]] = {}
    # Ready for an item; while it finishes another one, where `work` is a generator.
    idle: list[Actor] = []
    again: list[Item] = []
    dead: list[Actor] = []
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
            while idle and (again or not exhausted):
                free = [actor for actor in idle if all(other is not actor for other, _ in running.values())]
                if again and not free:
                    break
                item = again.pop() if again else next(remaining, _NO_ITEM)
                if item is _NO_ITEM:
                    exhausted = True
                else:
                    actor = (free or idle)[-1]
                    idle.remove(actor)
                    running[actor.work.remote(item)] = (actor, item)
            if exhausted and not again and all(item is _PREPARATION for _, item in running.values()):
                return
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            actor, item = running.pop(ready)
            is_stream = isinstance(ready, ray.ObjectRefGenerator)
            is_alone = item is not _PREPARATION and describe(item) in deaths
            try:
                result = ray.get(next(ready) if is_stream else ready)
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
                if actor not in dead:
                    dead.append(actor)
                    idle = [other for other in idle if other is not actor]
                    begin()
            except RayTaskError as error:
                raise error.cause from error
            else:
                takes_next = is_stream and result is None
                if takes_next:
                    running[ready] = (actor, item)
                if takes_next != is_alone or not is_stream:
                    idle.append(actor)
                if item is not _PREPARATION and not takes_next:
                    yield result
    finally:
        for actor in [*idle, *(actor for actor, _ in running.values())]:
            ray.kill(actor)
