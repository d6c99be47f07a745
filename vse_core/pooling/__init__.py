"""Aggregators: a padded set of vectors (B, N, D) and its lengths (B,) become one vector (B, D)."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vse_core.names import choose
from vse_core.pooling.gpo import GeneralizedPooling
from vse_core.pooling.simple import MaxPooling, MeanPooling

POOLINGS: dict[str, Callable[..., nn.Module]] = {
    "mean": MeanPooling,
    "max": MaxPooling,
    "gpo": GeneralizedPooling,
}


def build_pooling(name: str, dim: int, **options: Any) -> nn.Module:
    """Build an aggregator by name.

    Every aggregator is called with ``(features_BND, lengths_B)`` and returns ``(B, D)``; rows at or beyond a
    sample's length are padding and never change the result.

    Args:
        name: one of ``mean``, ``max``, ``gpo``.
        dim: D, the width of the vectors (aggregators that have no parameters of that width ignore it).
        **options: keyword arguments of the aggregator's class.

    Raises:
        ValueError: the name is unknown (the message lists the known ones), or an option does not exist.
    """
    return choose("pooling", POOLINGS, name, dim=dim, **options)
