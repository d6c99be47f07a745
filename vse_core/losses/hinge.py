"""The hinge, per pair or per negative, and the triplet ranking loss of VSE++ and VSE-infinity that adds it up."""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.losses.global_pairs import Block, GlobalPairs, PairLoss, Sums, TotalAndParts

Negatives = Literal["hardest", "all"]


def hinge_terms(
    block: Block, sims_MAC: Tensor, margin: float, negatives: Negatives, softness: float | None = None
) -> Tensor:
    """Terms ``[margin + s_ac - s_a]+`` of anchors a and candidates c, where s_a is the similarity of the anchor's pair.

    Of similarities (..., A, C) of a block's anchors and candidates, ``hardest`` keeps the largest term of each anchor,
    (..., A), ``all`` every negative's, (..., A, C); terms without a negative are 0. ``softness`` replaces the maximum
    and the hinge by log-sum-exp and softplus at this scale (the soft variant of MV-VSE's released code).
    """
    negative_MAC = sims_MAC.masked_fill(~block.negative_AC, -torch.inf)
    own_MA = block.own(sims_MAC)
    if softness is None and negatives == "hardest":
        return (margin + negative_MAC.amax(dim=-1) - own_MA).relu()
    violations_MAC = margin + negative_MAC - own_MA.unsqueeze(-1)
    if softness is None:
        return violations_MAC.relu()
    # As released, what is no negative counts as a violation of -1: nothing next to the scale, and finite, where -inf
    # would turn the gradient of a row without negatives into NaN.
    scaled_MAC = violations_MAC.clamp(min=-1.0) / softness
    return softness * nn.functional.softplus(scaled_MAC.logsumexp(dim=-1) if negatives == "hardest" else scaled_MAC)


@torch.no_grad()
def active_sums(block: Block, terms: Tensor) -> Sums:
    """Count the terms (A,) or (A, C) of :func:`hinge_terms`, and those above zero: only those teach a model."""
    hinges = block.negative_AC.sum(dtype=terms.dtype) if terms.dim() == 2 else terms.new_full((), len(terms))
    return {"hinges": hinges, "active_hinges": (terms > 0).sum(dtype=terms.dtype)}


def active_share(sums: Sums) -> Sums:
    """Return the share of hinges above zero, 0 if there are none, if :func:`active_sums` were taken."""
    return {"active_hinges": sums["active_hinges"] / sums["hinges"].clamp(min=1)} if "hinges" in sums else {}


class TripletLoss(PairLoss):
    """Push each pair above its negatives by a margin (VSE++ equations (5) and (6), VSE-infinity equation (6)).

    For similarity ``s_ij`` of image i and caption j the terms are ``[margin + s_ij - s_ii]+`` (caption retrieval) and
    ``[margin + s_ij - s_jj]+`` (image retrieval). ``hardest`` keeps the largest term of every row and column, ``all``
    sums all of them, which is how training has to begin: hardest negatives from the first step collapse the space to a
    point, where the loss stands still at ``2 * B * margin``.

    ``margin`` is how far a pair must lie above its negatives, in similarity. ``reduction`` is the ``sum`` over the
    batch (VSE++ and VSE-infinity) or its ``mean`` (the sum divided by B). With ``mask_same_image`` other captions of
    the same image are not negatives.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "sum",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__(mask_same_image)
        self.margin = margin
        self.negatives: Negatives = negatives
        self.reduction = reduction

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Sum over the batch, or its mean; the parts are both directions, and diagnosed the share of active hinges."""
        sums = pairs.sums(self._terms)
        names, is_mean = ("image_to_text", "text_to_image"), self.reduction == "mean"
        parts = {name: sums[name] / len(pairs) if is_mean else sums[name] for name in names}
        total = parts["image_to_text"] + parts["text_to_image"]
        return total, parts | active_share(sums)

    def _terms(self, block: Block) -> Sums:
        terms = hinge_terms(block, block.sims_AC, self.margin, self.negatives)
        direction = "image_to_text" if block.of_images else "text_to_image"
        return {direction: terms.sum()} | (active_sums(block, terms) if self.is_diagnosed else {})
