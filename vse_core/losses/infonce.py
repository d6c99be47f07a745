"""InfoNCE: every pair against all negatives of the batch in a softmax."""

import torch
from torch import Tensor, nn

from vse_core.losses.result import LossResult, pair_similarities
from vse_core.losses.similarity import best_view, negative_mask, view_similarities
from vse_core.losses.views import Bound, bound_over_views, check_bound, view_diagnostics


class InfoNCELoss(nn.Module):
    """Cross-entropy of the true caption among the batch's and of the true image among the batch's, averaged.

    ``-log( exp(s_ii / temperature) / sum_j exp(s_ij / temperature) )`` in both directions (van den Oord et al. 2018,
    equation (4); in this symmetric form CLIP, figure 3).

    Args:
        temperature: divisor of the similarities (VSE+2AD: 0.05).
        mask_same_image: do not take other captions of the same image as negatives.
        bound: how K views enter, ``max``, ``avg``, ``up`` or ``joint``
            (:func:`~vse_core.losses.views.bound_over_views`); without effect for one view.
        lam: weight of ``max`` in ``joint``.

    Raises:
        ValueError: an option has an unknown value.
    """

    def __init__(
        self, temperature: float = 0.05, mask_same_image: bool = False, bound: Bound = "max", lam: float = 0.7
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        check_bound(bound, lam, ("max", "avg", "up", "joint"))
        self.temperature = temperature
        self.mask_same_image = mask_same_image
        self.bound: Bound = bound
        self.lam = lam

    def forward(self, images_BKD: Tensor, texts_BD: Tensor, image_ids_B: Tensor) -> LossResult:
        """Loss of B pairs; row i of the images and of the texts belong together.

        Args:
            images_BKD: (B, K, D) unit vectors, K views of each image.
            texts_BD: (B, D) unit vectors.
            image_ids_B: (B,) integers, equal where two captions belong to one image.

        Returns:
            The total, and as parts the mean similarity of pairs and of their hardest negatives, and with several views
            their diagnostics.
        """
        sims_BKB = view_similarities(images_BKD, texts_BD)
        negative_BB = negative_mask(image_ids_B, self.mask_same_image)
        total = bound_over_views(lambda sims_BB: self._of(sims_BB, negative_BB), sims_BKB, self.bound, self.lam)
        parts = pair_similarities(best_view(sims_BKB), negative_BB) | view_diagnostics(images_BKD, sims_BKB)
        return LossResult(total, parts)

    def _of(self, sims_BB: Tensor, negative_BB: Tensor) -> Tensor:
        own_BB = torch.eye(len(sims_BB), dtype=torch.bool, device=sims_BB.device)
        logits_BB = (sims_BB / self.temperature).masked_fill(~(negative_BB | own_BB), -torch.inf)
        captions_B, images_B = (logits_BB.log_softmax(dim=dim).diagonal() for dim in (1, 0))
        return -(captions_B + images_B).mean() / 2
