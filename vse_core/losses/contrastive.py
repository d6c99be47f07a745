"""Losses over similarities divided by a temperature: InfoNCE, and the sigmoid loss."""

import math

import torch
from torch import Tensor, nn

from vse_core.losses.global_pairs import IMAGES, Block, GlobalPairs, PairLoss, Sums, TotalAndParts

# The largest factor of similarities that is learned (CLIP, section 2.5), if it does not begin with a larger one.
_LARGEST_SCALE = 100.0


class TemperatureLoss(PairLoss):
    """A loss over similarities divided by a temperature; that of an image of several views is the largest.

    If it is learned, the logarithm of its inverse, ``logit_scale``, is a parameter, at most ln 100 (CLIP, section 2.5).

    ``temperature``, positive, is the divisor of the similarities. With ``mask_same_image`` other captions of the same
    image are not negatives.
    """

    logit_scale: nn.Parameter | None

    def __init__(self, temperature: float, mask_same_image: bool, learned: bool = False) -> None:
        super().__init__(mask_same_image)
        self.temperature = temperature
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learned else None

    def divided(self, sims: Tensor) -> Tensor:
        """Divide similarities by the temperature."""
        if self.logit_scale is None:
            return sims / self.temperature
        with torch.no_grad():
            self.logit_scale.clamp_(max=math.log(max(_LARGEST_SCALE, 1 / self.temperature)))
        return sims * self.logit_scale.exp()

    def learned_values(self) -> dict[str, Tensor]:
        """Return what has been learned, for reports: the temperature."""
        return {} if self.logit_scale is None else {"temperature": (-self.logit_scale).exp()}


class InfoNCELoss(TemperatureLoss):
    """Cross-entropy of the true caption among the batch's and of the true image among the batch's, averaged.

    ``-log( exp(s_ii / temperature) / sum_j exp(s_ij / temperature) )`` in both directions (van den Oord et al. 2018,
    equation (4); in this symmetric form CLIP, figure 3). Arguments are those of :class:`TemperatureLoss`; VSE+2AD's
    temperature is 0.05, and CLIP learns it from 0.07 on.
    """

    def __init__(self, temperature: float = 0.05, mask_same_image: bool = False, learned: bool = False) -> None:
        super().__init__(temperature, mask_same_image, learned)

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Mean over the batch and both directions; its part is a learned temperature."""
        return pairs.sums(self._terms)["loss"] / len(pairs) / 2, self.learned_values()

    def _terms(self, block: Block) -> Sums:
        is_candidate_AC = block.negative_AC | block.own_mask()
        candidates_AC = self.divided(block.sims_AC).masked_fill(~is_candidate_AC, -torch.inf)
        return {"loss": -block.own(candidates_AC.log_softmax(dim=1)).sum()}


class SigmoidLoss(TemperatureLoss):
    """Logistic regression of every image against every caption of the batch (SigLIP, Zhai et al. 2023, section 3.2).

    ``-1/B sum_ij log sigmoid( z_ij (s_ij / temperature + bias) )``, where z is 1 for pairs and -1 for negatives.
    SigLIP learns both temperature and bias, from 0.1 and -10 on (nearly all pairs are negatives). Other arguments are
    those of :class:`TemperatureLoss`.
    """

    def __init__(
        self, temperature: float = 0.1, bias: float = -10.0, mask_same_image: bool = False, learned: bool = False
    ) -> None:
        super().__init__(temperature, mask_same_image, learned)
        self.bias: float | nn.Parameter = nn.Parameter(torch.tensor(float(bias))) if learned else bias

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Sum over all decisions, divided by B; its parts are a learned temperature and bias."""
        # Each decision is in a row of one image, and needs no second direction.
        return pairs.sums(self._terms, (IMAGES,))["loss"] / len(pairs), self.learned_values()

    def learned_values(self) -> dict[str, Tensor]:
        """Return what has been learned, for reports: temperature and bias."""
        learned = {"bias": self.bias} if isinstance(self.bias, nn.Parameter) else {}
        return super().learned_values() | learned

    def _terms(self, block: Block) -> Sums:
        logits_AC = self.divided(block.sims_AC) + self.bias
        losses_AC = -nn.functional.logsigmoid(torch.where(block.own_mask(), logits_AC, -logits_AC))
        return {"loss": losses_AC.masked_fill(~(block.negative_AC | block.own_mask()), 0.0).sum()}
