"""The hinge-based triplet ranking loss of VSE++ and VSE-infinity, with all or only the hardest negatives."""

from typing import Literal

from torch import Tensor, nn

from vse_core.losses.hinge import Negatives, check_hinge, hinge_terms
from vse_core.losses.result import LossResult, pair_similarities
from vse_core.losses.similarity import best_view, negative_mask, view_similarities
from vse_core.losses.views import view_diagnostics


class TripletLoss(nn.Module):
    """Push each pair above its negatives by a margin (VSE++ equations (5) and (6), VSE-infinity equation (6)).

    For similarity ``s_ij`` of image i and caption j the terms are ``[margin + s_ij - s_ii]+`` (caption retrieval) and
    ``[margin + s_ij - s_jj]+`` (image retrieval). ``hardest`` keeps the largest term of every row and column, ``all``
    sums all of them, which is how training has to begin: hardest negatives from the first step collapse the space to a
    point, where the loss stands still at ``2 * B * margin``.

    Args:
        margin: how far a pair must lie above its negatives, in similarity.
        negatives: ``hardest`` or ``all``.
        reduction: ``sum`` over the batch (VSE++ and VSE-infinity) or its ``mean`` (the sum divided by B).
        mask_same_image: do not take other captions of the same image as negatives.

    Raises:
        ValueError: an option has an unknown value.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "sum",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__()
        check_hinge(negatives, reduction)
        self.margin = margin
        self.negatives = negatives
        self.reduction = reduction
        self.mask_same_image = mask_same_image

    def forward(self, images_BKD: Tensor, texts_BD: Tensor, image_ids_B: Tensor) -> LossResult:
        """Loss of B pairs; row i of the images and of the texts belong together.

        Args:
            images_BKD: (B, K, D) unit vectors, K views of each image.
            texts_BD: (B, D) unit vectors.
            image_ids_B: (B,) integers, equal where two captions belong to one image.

        Returns:
            The total, and as parts both directions, the mean similarity of pairs and of their hardest negatives, and
            with several views their diagnostics.
        """
        sims_BKB = view_similarities(images_BKD, texts_BD)
        sims_BB = best_view(sims_BKB)
        negative_BB = negative_mask(image_ids_B, self.mask_same_image)
        captions, images = hinge_terms(sims_BB, negative_BB, self.margin, self.negatives)
        pairs = len(sims_BB) if self.reduction == "mean" else 1
        image_to_text, text_to_image = captions.sum() / pairs, images.sum() / pairs
        parts = {"image_to_text": image_to_text.detach(), "text_to_image": text_to_image.detach()}
        parts |= pair_similarities(sims_BB, negative_BB) | view_diagnostics(images_BKD, sims_BKB)
        return LossResult(image_to_text + text_to_image, parts)
