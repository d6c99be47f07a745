"""Sigmoid loss: each pair of the batch is a binary decision of its own, true or not."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from vse_core.losses.global_pairs import IMAGES, Block, GlobalPairs
from vse_core.losses.pair_loss import SoftmaxLoss, TotalAndParts
from vse_core.losses.views import Bound


class SigmoidLoss(SoftmaxLoss):
    """Logistic regression of every image against every caption of the batch (SigLIP, Zhai et al. 2023, section 3.2).

    ``-1/B sum_ij log sigmoid( z_ij (s_ij / temperature + bias) )``, where z is 1 for pairs and -1 for negatives.
    Unknown values of options are a ValueError.

    Other arguments are those of :class:`~vse_core.losses.pair_loss.SoftmaxLoss`.

    Args:
        temperature: divisor of the similarities (SigLIP begins with 0.1).
        bias: added to the divided similarities (SigLIP begins with -10, as nearly all pairs are negatives).
        learned: temperature and bias are learned, from these values on, as in the paper.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        bias: float = -10.0,
        mask_same_image: bool = False,
        bound: Bound = "max",
        lam: float = 0.7,
        learned: bool = False,
    ) -> None:
        super().__init__(temperature, mask_same_image, bound, lam, learned)
        self.bias: float | nn.Parameter = nn.Parameter(torch.tensor(bias)) if learned else bias

    @override
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Sum over all decisions, divided by B; its parts are a learned temperature and bias."""
        # Each decision is in a row of one image, and needs no second direction.
        return self.summed(pairs, self._of, (IMAGES,)) / len(pairs), self.learned_values()

    @override
    def learned_values(self) -> dict[str, Tensor]:
        """Return what has been learned, for reports: temperature and bias."""
        learned = {"bias": self.bias} if isinstance(self.bias, nn.Parameter) else {}
        return super().learned_values() | learned

    def _of(self, block: Block, sims_AC: Tensor) -> Tensor:
        logits_AC = self.divided(sims_AC) + self.bias
        losses_AC = -nn.functional.logsigmoid(torch.where(block.own_mask(), logits_AC, -logits_AC))
        return losses_AC.masked_fill(~(block.negative_AC | block.own_mask()), 0.0).sum()
