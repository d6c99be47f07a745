"""Similarities of images and texts by a member of an ensemble: of embeddings, or of a hierarchical model's levels.

B images, C captions, K views, D embedding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vse_core.losses.levels import level_similarities
from vse_core.outputs import Images, TextLevels, Texts, VideoLevels
from vse_core.similarity import similarity_matrix

# Cosines of frames and phrases that are held at once; 64 MiB in float32, of which a few copies are alive.
TILE_ELEMENTS = 2**24

Member = tuple[Images, Texts]
"""A model's output for all images and all captions: (B, K, D) and (C, D), or levels of both."""


def unified_members(members: Sequence[Member]) -> list[Member]:
    """Give embeddings (B, D) their axis of views, (B, 1, D)."""
    return [
        (images.unsqueeze(1) if isinstance(images, Tensor) and images.dim() == 2 else images, texts)
        for images, texts in members
    ]


def compare(images: Images, texts: Texts) -> Tensor:
    """Similarities (B, C) in float32: the best view, or the mean of a hierarchical model's levels."""
    if isinstance(images, VideoLevels):
        step = max(1, TILE_ELEMENTS // (comparisons(images, texts) * max(1, len(images))))
        runs = (slice(first, first + step) for first in range(0, len(texts), step))
        return torch.cat([level_similarities(images, _levels(texts)[run]).mean(dim=0) for run in runs], dim=1)
    assert isinstance(texts, Tensor)
    return similarity_matrix(images, texts)


def comparisons(images: Images, texts: Texts) -> int:
    """Return the numbers held at once for one similarity: views, or cosines of frames and phrases."""
    if isinstance(images, VideoLevels):
        phrases = _levels(texts).action_mask_cA.shape[1] + _levels(texts).entity_mask_cE.shape[1]
        return max(1, images.frame_mask_bN.shape[1] * phrases)
    return images.shape[1] if images.dim() == 3 else 1


def _levels(texts: Texts) -> TextLevels:
    assert isinstance(texts, TextLevels), "levels are compared with levels"
    return texts
