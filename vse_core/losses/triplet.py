"""The hinge-based triplet ranking loss of VSE++ and VSE-infinity, with all or only the hardest negatives."""

from typing import Literal

from typing_extensions import override

from vse_core.losses.global_pairs import Block, GlobalPairs, Sums
from vse_core.losses.hinge import Negatives, active_sums, check_hinge, hinge_terms
from vse_core.losses.pair_loss import PairLoss, TotalAndParts


class TripletLoss(PairLoss):
    """Push each pair above its negatives by a margin (VSE++ equations (5) and (6), VSE-infinity equation (6)).

    For similarity ``s_ij`` of image i and caption j the terms are ``[margin + s_ij - s_ii]+`` (caption retrieval) and
    ``[margin + s_ij - s_jj]+`` (image retrieval). ``hardest`` keeps the largest term of every row and column, ``all``
    sums all of them, which is how training has to begin: hardest negatives from the first step collapse the space to a
    point, where the loss stands still at ``2 * B * margin``.

    Args:
        margin: how far a pair must lie above its negatives, in similarity.
        negatives: ``hardest`` or ``all``; anything else is a ValueError, as for the reduction.
        reduction: ``sum`` over the batch (VSE++ and VSE-infinity) or its ``mean`` (the sum divided by B).
        mask_same_image: do not take other captions of the same image as negatives.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "sum",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__(mask_same_image)
        check_hinge(negatives, reduction)
        self.margin = margin
        self.negatives: Negatives = negatives
        self.reduction = reduction

    @override
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Sum over the batch, or its mean; the parts are both directions, and the share of hinges that are active."""
        sums = pairs.sums(self._terms)
        divisor = len(pairs) if self.reduction == "mean" else 1
        parts = {name: sums[name] / divisor for name in ("image_to_text", "text_to_image")}
        total = parts["image_to_text"] + parts["text_to_image"]
        return total, parts | {"active_hinges": sums["active_hinges"] / sums["hinges"]}

    def _terms(self, block: Block) -> Sums:
        terms = hinge_terms(block, block.sims_AC, self.margin, self.negatives)
        direction = "image_to_text" if block.of_images else "text_to_image"
        return {direction: terms.sum()} | active_sums(block, terms)
