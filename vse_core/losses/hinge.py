"""The terms of the hinge, per pair or per negative, which the triplet and the multi-view losses add up."""

from typing import Literal

import torch
from torch import Tensor, nn

Negatives = Literal["hardest", "all"]


def hinge_terms(
    sims_MBB: Tensor, negative_BB: Tensor, margin: float, negatives: Negatives, softness: float | None = None
) -> tuple[Tensor, Tensor]:
    """Terms of caption retrieval ``[margin + s_ij - s_ii]+`` and of image retrieval ``[margin + s_ij - s_jj]+``.

    Args:
        sims_MBB: (..., B, B) similarities of image i and caption j; the pairs are on the diagonal.
        negative_BB: true where i and j are a negative pair.
        margin: how far a pair must lie above its negatives.
        negatives: ``hardest`` keeps the largest term of a row or column, ``all`` keeps every negative's.
        softness: replace the maximum and the hinge by their smooth forms at this scale, ``log-sum-exp`` and
            ``softplus`` (the released journal variant of MV-VSE).

    Returns:
        Both directions' terms: (..., B) for ``hardest``, (..., B, B) for ``all``; 0 where there is no negative.
    """
    negative_MBB = sims_MBB.masked_fill(~negative_BB, -torch.inf)
    positive_MB = sims_MBB.diagonal(dim1=-2, dim2=-1)
    captions_MBB = margin + negative_MBB - positive_MB.unsqueeze(-1)
    images_MBB = margin + negative_MBB - positive_MB.unsqueeze(-2)
    if softness is None:
        if negatives == "hardest":
            captions, images = captions_MBB.amax(dim=-1), images_MBB.amax(dim=-2)
        else:
            captions, images = captions_MBB, images_MBB
        return captions.clamp(min=0), images.clamp(min=0)
    return _soft_hinge(captions_MBB, -1, negatives, softness), _soft_hinge(images_MBB, -2, negatives, softness)


@torch.no_grad()
def active_hinges(captions: Tensor, images: Tensor, negative_BB: Tensor) -> Tensor:
    """Share of both directions' terms, from :func:`hinge_terms`, that are above zero: only those teach a model."""
    terms = 2 * (negative_BB.sum() if captions.dim() == 2 else len(captions))
    return ((captions > 0).sum() + (images > 0).sum()) / terms


def check_hinge(negatives: str, reduction: str) -> None:
    """Refuse unknown options of a hinge loss by a ValueError that lists the known values."""
    if negatives not in ("hardest", "all"):
        raise ValueError(f"negatives must be 'hardest' or 'all', got {negatives!r}")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction must be 'sum' or 'mean', got {reduction!r}")


def _soft_hinge(violations_MBB: Tensor, dim: int, negatives: Negatives, softness: float) -> Tensor:
    # As released, what is no negative counts as a violation of -1: nothing next to the scale, and finite, where -inf
    # would turn the gradient of a row without negatives into NaN.
    scaled_MBB = violations_MBB.clamp(min=-1.0) / softness
    scaled = scaled_MBB.logsumexp(dim=dim) if negatives == "hardest" else scaled_MBB
    return softness * nn.functional.softplus(scaled)
