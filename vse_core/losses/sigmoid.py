"""Sigmoid loss: each pair of the batch is a binary decision of its own, true or not."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from vse_core.losses.pair_loss import SoftmaxLoss, TotalAndParts
from vse_core.losses.views import Bound, bound_over_views
from vse_core.similarity import own_pairs


class SigmoidLoss(SoftmaxLoss):
    """Logistic regression of every image against every caption of the batch (SigLIP, Zhai et al. 2023, section 3.2).

    ``-1/B sum_ij log sigmoid( z_ij (s_ij / temperature + bias) )``, where z is 1 for pairs and -1 for negatives.
    Unknown values of options are a ValueError.

    Args:
        temperature: divisor of the similarities (SigLIP begins with 0.1).
        bias: added to the divided similarities (SigLIP begins with -10, as nearly all pairs are negatives).
        mask_same_image: do not take other captions of the same image as negatives.
        bound: how K views enter, ``max``, ``avg``, ``up`` or ``joint``
            (:func:`~vse_core.losses.views.bound_over_views`); without effect for one view.
        lam: weight of ``max`` in ``joint``.
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
    def total_and_parts(self, sims_BKB: Tensor, negative_BB: Tensor, image_ids_B: Tensor) -> TotalAndParts:
        """Sum over all decisions, divided by B; its parts are a learned temperature and bias."""
        total = bound_over_views(lambda sims: self._of(sims, negative_BB), sims_BKB, self.bound, self.lam)
        return total, self.learned_values()

    @override
    def learned_values(self) -> dict[str, Tensor]:
        """Return what has been learned, for reports: temperature and bias."""
        learned = {"bias": self.bias} if isinstance(self.bias, nn.Parameter) else {}
        return super().learned_values() | learned

    def _of(self, sims_BB: Tensor, negative_BB: Tensor) -> Tensor:
        own_BB = own_pairs(sims_BB)
        logits_BB = self.divided(sims_BB) + self.bias
        losses_BB = -nn.functional.logsigmoid(torch.where(own_BB, logits_BB, -logits_BB))
        return losses_BB.masked_fill(~(negative_BB | own_BB), 0.0).sum() / len(sims_BB)
