"""Similarities of images and texts by a member of an ensemble: of embeddings, or as its outputs compare themselves.

B images, C captions, K views, D embedding.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vse_core.evaluation.ranks import CHUNK_ELEMENTS, nan_as_worst
from vse_core.outputs import Images, Texts
from vse_core.similarity import similarity_matrix

Member = tuple[Images, Texts]
"""A model's output for all images and all captions: (B, K, D) and (C, D), or what compares itself."""


def unified_members(members: Sequence[Member]) -> list[Member]:
    """Give embeddings (B, D) their axis of views, (B, 1, D)."""
    return [
        (images.unsqueeze(1) if isinstance(images, Tensor) and images.dim() == 2 else images, texts)
        for images, texts in members
    ]


def compare(images: Images, texts: Texts) -> Tensor:
    """Similarities (B, C) in float32: the best view, or the outputs' own similarity."""
    if isinstance(images, Tensor):
        assert isinstance(texts, Tensor)
        return similarity_matrix(images, texts)
    step = max(1, CHUNK_ELEMENTS // (comparisons(images, texts) * max(1, len(images))))
    runs = (slice(first, first + step) for first in range(0, len(texts), step))
    return torch.cat([images.similarities(texts[run]) for run in runs], dim=1)


def comparisons(images: Images, texts: Texts) -> int:
    """Return the numbers held at once for one similarity: views, or what the outputs' own similarity holds."""
    if isinstance(images, Tensor):
        return images.shape[1] if images.dim() == 3 else 1
    return images.numbers_per_pair(texts)


def mean_similarities(members: Sequence[Member], compare_member: Callable[[Images, Texts], Tensor]) -> Tensor:
    """Return the mean of the members' similarities, those that are not numbers as :func:`nan_as_worst` says."""
    total = functools.reduce(torch.add, (compare_member(images, texts) for images, texts in members))
    return nan_as_worst(total / len(members) if len(members) > 1 else total)
