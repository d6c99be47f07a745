"""Random draws that are the same on every machine and with every version of numpy."""

from collections.abc import Sequence
from typing import TypeVar

from preprocessing.randomness import scene_bits

T = TypeVar("T")


class Draws:
    """A stream of draws that is a function of (seed, index, stream) alone, each in 0 .. 2**64 - 1.

    Built on the raw output of Philox, which numpy guarantees not to change, unlike the methods of its Generator.
    """

    def __init__(self, seed: int, index: int, stream: int) -> None:
        self._bits = scene_bits(seed, index, stream)

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to limit - 1 (the bias of the remainder is below limit / 2**64)."""
        return int(self._bits.random_raw()) % limit

    def between(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of 100 draws."""
        return self.below(100) < percent

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` different items in random order (Fisher-Yates)."""
        pool = list(items)
        for place in range(count):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:count]
