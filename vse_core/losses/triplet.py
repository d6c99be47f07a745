"""The hinge-based triplet ranking loss of VSE++ and VSE-infinity, with all or only the hardest negatives."""

from typing import Literal

from torch import Tensor
from typing_extensions import override

from vse_core.losses.hinge import Negatives, active_hinges, check_hinge, hinge_terms
from vse_core.losses.pair_loss import PairLoss, TotalAndParts
from vse_core.similarity import best_view


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
        self.negatives = negatives
        self.reduction = reduction

    @override
    def total_and_parts(self, sims_BKB: Tensor, negative_BB: Tensor, image_ids_B: Tensor) -> TotalAndParts:
        """Sum over the batch, or its mean; the parts are both directions, and the share of hinges that are active."""
        captions, images = hinge_terms(best_view(sims_BKB), negative_BB, self.margin, self.negatives)
        pairs = len(sims_BKB) if self.reduction == "mean" else 1
        image_to_text, text_to_image = captions.sum() / pairs, images.sum() / pairs
        return image_to_text + text_to_image, {
            "image_to_text": image_to_text,
            "text_to_image": text_to_image,
            "active_hinges": active_hinges(captions, images, negative_BB),
        }
