"""InfoNCE: every pair against all negatives of the batch in a softmax."""

import torch
from torch import Tensor
from typing_extensions import override

from vse_core.losses.global_pairs import Block, GlobalPairs
from vse_core.losses.pair_loss import SoftmaxLoss, TotalAndParts
from vse_core.losses.views import Bound


class InfoNCELoss(SoftmaxLoss):
    """Cross-entropy of the true caption among the batch's and of the true image among the batch's, averaged.

    ``-log( exp(s_ii / temperature) / sum_j exp(s_ij / temperature) )`` in both directions (van den Oord et al. 2018,
    equation (4); in this symmetric form CLIP, figure 3). Unknown values of options are a ValueError.

    Other arguments are those of :class:`~vse_core.losses.pair_loss.SoftmaxLoss`.

    Args:
        temperature: divisor of the similarities (VSE+2AD: 0.05).
        learned: the temperature is learned, from that value on (CLIP: 0.07).
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
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Mean over the batch and both directions; its part is a learned temperature."""
        return self.summed(pairs, self._of) / len(pairs) / 2, self.learned_values()

    def _of(self, block: Block, sims_AC: Tensor) -> Tensor:
        candidates_AC = self.divided(sims_AC).masked_fill(~(block.negative_AC | block.own_mask()), -torch.inf)
        return -block.own(candidates_AC.log_softmax(dim=1)).sum()
