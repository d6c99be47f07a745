"""The terms of the hinge, per pair or per negative, which the triplet and the multi-view losses add up."""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.losses.global_pairs import Block, Sums

Negatives = Literal["hardest", "all"]


def hinge_terms(
    block: Block, sims_MAC: Tensor, margin: float, negatives: Negatives, softness: float | None = None
) -> Tensor:
    """Terms ``[margin + s_ac - s_a]+`` of anchors a and candidates c, where s_a is the similarity of the anchor's pair.

    Args:
        block: which candidates are the anchors' own, and which are negatives.
        sims_MAC: (..., A, C) similarities of its anchors and candidates.
        margin: how far a pair must lie above its negatives.
        negatives: ``hardest`` keeps the largest term of a row or column, ``all`` keeps every negative's.
        softness: replace the maximum and the hinge by their smooth forms at this scale, ``log-sum-exp`` and
            ``softplus`` (the released journal variant of MV-VSE).

    Returns:
        The terms: (..., A) for ``hardest``, (..., A, C) for ``all``; 0 where there is no negative.
    """
    negative_MAC = sims_MAC.masked_fill(~block.negative_AC, -torch.inf)
    violations_MAC = margin + negative_MAC - block.own(sims_MAC).unsqueeze(-1)
    if softness is not None:
        return _soft_hinge(violations_MAC, negatives, softness)
    return (violations_MAC.amax(dim=-1) if negatives == "hardest" else violations_MAC).clamp(min=0)


@torch.no_grad()
def active_sums(block: Block, terms: Tensor) -> Sums:
    """Count the terms (A,) or (A, C) of :func:`hinge_terms`, and those above zero: only those teach a model."""
    hinges = block.negative_AC.sum() if terms.dim() == 2 else terms.new_full((), len(terms))
    return {"hinges": hinges, "active_hinges": (terms > 0).sum()}


def check_hinge(negatives: str, reduction: str) -> None:
    """Refuse unknown options of a hinge loss by a ValueError that lists the known values."""
    if negatives not in ("hardest", "all"):
        raise ValueError(f"negatives must be 'hardest' or 'all', got {negatives!r}")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction must be 'sum' or 'mean', got {reduction!r}")


def _soft_hinge(violations_MAC: Tensor, negatives: Negatives, softness: float) -> Tensor:
    # As released, what is no negative counts as a violation of -1: nothing next to the scale, and finite, where -inf
    # would turn the gradient of a row without negatives into NaN.
    scaled_MAC = violations_MAC.clamp(min=-1.0) / softness
    scaled = scaled_MAC.logsumexp(dim=-1) if negatives == "hardest" else scaled_MAC
    return softness * nn.functional.softplus(scaled)
