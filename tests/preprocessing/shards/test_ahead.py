"""Work ahead of the consumer: order, bounds, errors, an early end."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from preprocessing.shards.ahead import ahead


@pytest.mark.parametrize("depth", [1, 3])
def test_items_come_in_order(depth: int) -> None:
    assert list(ahead(iter(range(50)), depth)) == list(range(50))
    assert list(ahead(iter(()), depth)) == []


def test_not_more_is_made_than_asked_for() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    stream = ahead(items(), 3)
    assert next(stream) == 0
    time.sleep(0.1)
    # One taken, three waiting, one in hand.
    assert len(made) == 5


def test_the_next_item_is_made_while_the_last_is_used() -> None:
    other: list[int] = []
    for _ in ahead((other.append(threading.get_ident()) for _ in range(3)), 1):
        pass
    assert len(set(other)) == 1
    assert threading.get_ident() not in other


def test_an_error_comes_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the third shelf")

    stream = ahead(items(), 5)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="the third shelf"):
        next(stream)


def test_a_consumer_that_leaves_stops_the_thread() -> None:
    before = threading.active_count()
    stream = ahead(itertools.count(), 2)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() == before
