"""The background thread: order, bound, errors, and no thread left over."""

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from preprocessing.prefetch import prefetch, prefetch_calls


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


@pytest.mark.parametrize("count", [1, 3])
def test_several_threads_keep_the_order(count: int) -> None:
    running, most = set(), 0
    lock = threading.Lock()

    def call(number: int) -> int:
        nonlocal most
        with lock:
            running.add(number)
            most = max(most, len(running))
        time.sleep(0.002 * (5 - number % 5))  # later ones are done first
        with lock:
            running.remove(number)
        return number

    assert list(prefetch_calls((partial(call, number) for number in range(30)), 2, count)) == list(range(30))
    assert most == count
    assert threads() == 0


def test_an_error_of_one_of_several_threads_comes_in_its_place() -> None:
    items = prefetch_calls((partial(divmod, 6, divisor) for divisor in (3, 2, 0, 1)), 2, 2)
    assert [next(items), next(items)] == [(2, 0), (3, 0)]
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert threads() == 0
