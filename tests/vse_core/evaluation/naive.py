"""Ranks of a query by sorting its own list."""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Naive(NamedTuple):
    """The best relevant item: rank from 0, whether an irrelevant one ties, itself, its score; and the first item."""

    rank: int
    tied: bool
    best: int
    score: float
    first: int
    first_score: float


def naive_ranks(scores: Sequence[float], relevant: Collection[int]) -> Naive:
    """Rank the items of a list."""
    # Of equals the later one comes first.
    order = sorted(range(len(scores)), key=lambda item: (-scores[item], -item))
    rank = next(place for place, item in enumerate(order) if item in relevant)
    best = order[rank]
    tied = any(scores[item] == scores[best] and item not in relevant for item in range(len(scores)))
    return Naive(rank, tied, best, scores[best], order[0], scores[order[0]])
