"""The pool on a real cluster: every item once, lazily, whatever happens to the actors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from pipelines.runtime.actor_pool import ActorPool
from pipelines.runtime.stage import StageError

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Squarer:
    """Squares; 13 kills the process the first time, 666 always; 7 is refused."""

    def __init__(self, marks: str, prepares: bool = True) -> None:
        self.marks, self.prepares = Path(marks), prepares

    def prepare(self) -> None:
        if not self.prepares:
            raise FileNotFoundError("no weights")

    def work(self, item: int) -> int:
        mark = self.marks / str(item)
        if item == 666 or (item == 13 and not mark.exists()):
            mark.touch()
            os._exit(1)
        if item == 7:
            raise ValueError("seven is refused")
        return item * item


def starter(marks: Path, **options: Any) -> Callable[[], Any]:
    actor = ray.remote(Squarer).options(num_cpus=0.5)
    return lambda: actor.remote(str(marks), **options)


def test_every_item_once(tmp_path: Path) -> None:
    items = [item for item in range(40) if item not in (7, 13)]
    results = list(ActorPool(starter(tmp_path), 3, items, str).results())
    assert sorted(results) == [item * item for item in items]


def test_items_are_drawn_when_an_actor_is_free(tmp_path: Path) -> None:
    drawn = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield 2

    results = ActorPool(starter(tmp_path), 2, endless(), str).results()
    for _ in range(5):
        assert next(results) == 4
    results.close()  # type: ignore[attr-defined]
    assert drawn <= 5 + 2


def test_an_actor_that_dies_is_replaced_and_its_item_done_again(tmp_path: Path) -> None:
    results = list(ActorPool(starter(tmp_path), 2, [1, 13, 2, 3], str).results())
    assert sorted(results) == [1, 4, 9, 169]


def test_an_item_that_kills_again_and_again_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="item 666: the process that did it has died 3 times"):
        list(ActorPool(starter(tmp_path), 1, [666], lambda item: f"item {item}").results())


def test_an_error_arrives_as_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^seven is refused$"):
        list(ActorPool(starter(tmp_path), 1, [1, 7], str).results())


def test_an_error_of_the_preparation_arrives_as_itself(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no weights"):
        list(ActorPool(starter(tmp_path, prepares=False), 2, [1], str).results())


class Overlapping:
    """Finishes an item once the next has begun; meanwhile 13 kills the process once, 666 always, and -1 is refused."""

    def __init__(self, marks: str, patience: float) -> None:
        self.marks, self.patience = Path(marks), patience

    def prepare(self) -> None:
        pass

    def work(self, item: int) -> Iterator[int | None]:
        (self.marks / str(item)).touch()
        yield None
        following, deadline = self.marks / str(item + 1), time.monotonic() + self.patience
        while item != 5 and not following.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if following.exists():
            (self.marks / f"{item} waited for the next").touch()
        if item == 666 or (item == 13 and not (self.marks / "killed").exists()):
            (self.marks / "killed").touch()
            os._exit(1)
        if item == -1:
            raise ValueError("refused at its end")
        yield item * item


def overlapped(marks: Path, items: list[int], patience: float = 3) -> list[int]:
    actor = ray.remote(Overlapping).options(num_cpus=0.5, max_concurrency=2)
    return list(ActorPool(lambda: actor.remote(str(marks), patience), 1, items, "item {}".format).results())


def test_an_actor_begins_an_item_while_it_finishes_the_one_before(tmp_path: Path) -> None:
    assert sorted(overlapped(tmp_path, [1, 2, 3, 4, 5], patience=60)) == [1, 4, 9, 16, 25]
    assert len(list(tmp_path.glob("* waited for the next"))) == 4


def test_items_that_die_with_another_are_done_again(tmp_path: Path) -> None:
    assert sorted(overlapped(tmp_path, [2, 13, 14, 15, 5])) == [4, 25, 169, 196, 225]


def test_an_item_is_not_blamed_for_another_that_kills_its_process(tmp_path: Path) -> None:
    """Whatever was there at the same time, that which kills is named in the end."""
    with pytest.raises(StageError, match="item 666: the process that did it has died 3 times"):
        overlapped(tmp_path, [4, 666, 667, 668, 5])
