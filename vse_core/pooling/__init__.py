"""Aggregators: a padded set of vectors (B, N, D) and its lengths (B,) become one vector (B, D)."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vse_core.pooling.adpool import AdaptivePooling
from vse_core.pooling.base import MultiViewPooling
from vse_core.pooling.contextual import GraphPooling, SelfAttentionPooling, Seq2SeqPooling
from vse_core.pooling.gpo import DimensionGenerator, FeatureGenerator, GeneralizedPooling, TransformerGenerator
from vse_core.pooling.learned import (
    AdaPooling,
    AttentionPooling,
    FSPooling,
    GeMPooling,
    LocalImportancePooling,
    SoftPooling,
)
from vse_core.pooling.simple import ClsPooling, KMaxPooling, LastPooling, MaxPooling, MeanPooling
from vse_core.registry import choose

POOLINGS: dict[str, Callable[..., nn.Module]] = {
    "mean": MeanPooling,
    "max": MaxPooling,
    "kmax": KMaxPooling,
    "cls": ClsPooling,
    "last": LastPooling,
    "gpo": GeneralizedPooling,
    "gpo_transformer": TransformerGenerator,
    "gpo_dimensions": DimensionGenerator,
    "gpo_features": FeatureGenerator,
    "adpool": AdaptivePooling,
    "gem": GeMPooling,
    "fspool": FSPooling,
    "softpool": SoftPooling,
    "adapool": AdaPooling,
    "lip": LocalImportancePooling,
    "attention": AttentionPooling,
    "seq2seq": Seq2SeqPooling,
    "selfattn": SelfAttentionPooling,
    "gcn": GraphPooling,
}


def build_pooling(name: str, dim: int, **options: Any) -> nn.Module:
    """Build an aggregator by name; unknown names and options are a ValueError that lists the known ones.

    Every aggregator is called with ``(features_BND, lengths_B)`` and returns ``(B, D)``; rows at or beyond a
    sample's length are padding and never change the result. A length of 0, or beyond N, is a ValueError.
    Aggregators without parameters of width D ignore ``dim``.
    """
    return choose("pooling", POOLINGS, name, dim=dim, **options)


def build_views(count: int, name: str, dim: int, **options: Any) -> nn.Module:
    """Build K aggregators of one kind over the same features (MV-VSE); K = 1 gives the aggregator itself, (B, D).

    Other arguments and errors are those of :func:`build_pooling`.
    """
    if count == 1:
        return build_pooling(name, dim, **options)
    return MultiViewPooling([build_pooling(name, dim, **options) for _ in range(count)])
