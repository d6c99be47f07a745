"""InfoNCE: every pair against all negatives of the batch in a softmax."""

import torch
from torch import Tensor
from typing_extensions import override

from vse_core.losses.pair_loss import SoftmaxLoss, TotalAndParts
from vse_core.losses.views import Bound, bound_over_views
from vse_core.similarity import own_pairs


class InfoNCELoss(SoftmaxLoss):
    """Cross-entropy of the true caption among the batch's and of the true image among the batch's, averaged.

    ``-log( exp(s_ii / temperature) / sum_j exp(s_ij / temperature) )`` in both directions (van den Oord et al. 2018,
    equation (4); in this symmetric form CLIP, figure 3). Unknown values of options are a ValueError.

    Args:
        temperature: divisor of the similarities (VSE+2AD: 0.05).
        learned: the temperature is learned, from that value on (CLIP: 0.07).
        mask_same_image: do not take other captions of the same image as negatives.
        bound: how K views enter, ``max``, ``avg``, ``up`` or ``joint``
            (:func:`~vse_core.losses.views.bound_over_views`); without effect for one view.
        lam: weight of ``max`` in ``joint``.
    """

    def __init__(
        self,
        temperature: float = 0.05,
        mask_same_image: bool = False,
        bound: Bound = "max",
        lam: float = 0.7,
        learned: bool = False,
    ) -> None:
        super().__init__(temperature, mask_same_image, bound, lam, learned)

    @override
    def total_and_parts(self, sims_BKB: Tensor, negative_BB: Tensor, image_ids_B: Tensor) -> TotalAndParts:
        """Mean over the batch and both directions; its part is a learned temperature."""
        total = bound_over_views(lambda sims: self._of(sims, negative_BB), sims_BKB, self.bound, self.lam)
        return total, self.learned_values()

    def _of(self, sims_BB: Tensor, negative_BB: Tensor) -> Tensor:
        candidates_BB = self.divided(sims_BB).masked_fill(~(negative_BB | own_pairs(sims_BB)), -torch.inf)
        captions_B, images_B = (candidates_BB.log_softmax(dim=dim).diagonal() for dim in (1, 0))
        return -(captions_B + images_B).mean() / 2
