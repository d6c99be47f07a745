"""The hinge-based triplet ranking loss of VSE++ and VSE-infinity, with all or only the hardest negatives."""

from typing import Literal

from torch import Tensor, nn

from vse_core.losses.result import LossResult
from vse_core.losses.similarity import negative_mask, similarity_matrix


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
        negatives: Literal["hardest", "all"] = "hardest",
        reduction: Literal["sum", "mean"] = "sum",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__()
        if negatives not in ("hardest", "all"):
            raise ValueError(f"negatives must be 'hardest' or 'all', got {negatives!r}")
        if reduction not in ("sum", "mean"):
            raise ValueError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
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
            The total, and as parts both directions and the mean similarity of pairs and of their hardest negatives.
        """
        sims_BB = similarity_matrix(images_BKD, texts_BD)
        negative_BB = negative_mask(image_ids_B, self.mask_same_image)
        positive_B = sims_BB.diagonal()
        caption_cost_BB = (self.margin + sims_BB - positive_B.unsqueeze(1)).clamp(min=0).masked_fill(~negative_BB, 0.0)
        image_cost_BB = (self.margin + sims_BB - positive_B.unsqueeze(0)).clamp(min=0).masked_fill(~negative_BB, 0.0)
        if self.negatives == "hardest":
            image_to_text, text_to_image = caption_cost_BB.amax(dim=1).sum(), image_cost_BB.amax(dim=0).sum()
        else:
            image_to_text, text_to_image = caption_cost_BB.sum(), image_cost_BB.sum()
        if self.reduction == "mean":
            image_to_text, text_to_image = image_to_text / len(sims_BB), text_to_image / len(sims_BB)
        hardest_B = sims_BB.detach().masked_fill(~negative_BB, -float("inf")).amax(dim=1)
        parts = {
            "image_to_text": image_to_text.detach(),
            "text_to_image": text_to_image.detach(),
            "positive_similarity": positive_B.detach().mean(),
            "hardest_negative_similarity": hardest_B[hardest_B.isfinite()].mean(),
        }
        return LossResult(image_to_text + text_to_image, parts)
