"""The background thread: order, bound, errors, and no thread left over."""

import threading
import time
from collections.abc import Iterator

import pytest

from preprocessing.prefetch import prefetch


def threads() -> int:
    return sum(thread.name.startswith("prefetch") for thread in threading.enumerate())


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_items_come_in_order(depth: int) -> None:
    assert list(prefetch(iter(range(20)), depth)) == list(range(20))
    assert list(prefetch(iter([]), depth)) == []
    assert threads() == 0


def test_no_more_than_the_depth_runs_ahead() -> None:
    made = 0

    def count() -> Iterator[int]:
        nonlocal made
        while True:
            made += 1
            yield made

    items = prefetch(count(), 2)
    assert made == 0
    for taken in range(1, 6):
        assert next(items) == taken
        time.sleep(0.02)
        assert made <= taken + 3
    items.close()
    assert threads() == 0


def test_an_exception_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError("in the background")

    items = prefetch(failing(), 4)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ZeroDivisionError, match="in the background"):
        next(items)
    assert threads() == 0


def test_stopping_at_any_moment() -> None:
    """Close while the producer is anywhere between its steps; a lost wake-up would hang the join."""
    for round_ in range(200):
        items = prefetch(iter(range(round_ % 7 + 1)), round_ % 3 + 1)
        for _ in range(round_ % 4):
            next(items, None)
        items.close()
    assert threads() == 0
