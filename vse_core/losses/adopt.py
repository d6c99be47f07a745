"""ADOPT of VSE+2AD: a contrastive loss over the K hardest negatives, K chosen by how far the model has come."""

import math
from typing import Literal

import torch
from torch import Tensor

from vse_core.losses.contrastive import TemperatureLoss
from vse_core.losses.global_pairs import IMAGES, Block, GlobalPairs, Sums, TotalAndParts

Variant = Literal["corrected", "release", "paper"]
Count = Literal["adaptive", "constant", "random"]

# Exponent of the measured maturity in the released code.
_EXPONENT = 1.25
# The constants of splitmix64, as signed numbers: what is added to a seed; shifts and factors of its bits.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIXING = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))


class AdoptLoss(TemperatureLoss):
    """Contrast each pair with the K hardest negatives of the batch, K falling as training proceeds (VSE+2AD, 3.3).

    K follows from two measures of the batch, the alignment of the pairs and the uniformity of all similarities.

    - ``paper``: uniformity is ``log mean exp(s)``, ``K = floor(B cos((alignment + uniformity) pi / 4))`` (equation
      (6)); the softmax holds the negatives alone, without a margin, and both directions add up. It is unbounded below,
      and K stays near B however good the model is.
    - ``release``: as in the released code. Uniformity is the mean of ``exp(-s)`` with 1 for the pairs,
      ``K = int(B cos((alignment + uniformity)^1.25)) + 1``; negatives get a margin, the pair is in the softmax, and
      both directions are averaged. Negatives are mined after setting the pairs' similarity to 0, so that a pair is
      taken for its own negative if fewer than K others exceed 0.
    - ``corrected``: the release with mining among true negatives only.

    K lies between 1 and B - 1 and carries no gradient.

    ``margin`` is added to the similarity of negatives (none in ``paper``). For comparison ``count`` makes K the
    ``constant``, or ``random``, uniform in 1 .. B - 1. Other arguments are those of
    :class:`~vse_core.losses.contrastive.TemperatureLoss`.
    """

    def __init__(
        self,
        variant: Variant = "corrected",
        temperature: float = 0.05,
        margin: float = 0.2,
        count: Count = "adaptive",
        constant: int = 3,
        mask_same_image: bool = False,
    ) -> None:
        super().__init__(temperature, mask_same_image)
        self.variant = variant
        self.margin = 0.0 if variant == "paper" else margin
        self.count = count
        self.constant = constant

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Mean over the batch; the parts are ``negatives`` (the number K), ``alignment`` and ``uniformity``."""
        alignment, uniformity = self._maturity(pairs)
        hardest = self._number(alignment, uniformity, pairs.image_ids_B)
        loss = pairs.sums(lambda block: {"loss": self._of(block, hardest)})["loss"]
        total = loss if self.variant == "paper" else loss / 2
        return total, {"negatives": hardest.float(), "alignment": alignment, "uniformity": uniformity}

    @torch.no_grad()
    def _maturity(self, pairs: GlobalPairs) -> tuple[Tensor, Tensor]:
        """Alignment and uniformity of a batch's similarities, as the variant defines them."""
        sums = pairs.sums(self._maturity_sums, (IMAGES,))
        uniformity = sums["uniformity"] / len(pairs) ** 2
        return sums["alignment"] / len(pairs), uniformity.log() if self.variant == "paper" else uniformity

    def _maturity_sums(self, block: Block) -> Sums:
        sims_AC = block.sims_AC
        exponents_AC = sims_AC if self.variant == "paper" else sims_AC.masked_fill(block.own_mask(), 0.0).neg()
        return {"alignment": block.own(sims_AC).sum(), "uniformity": exponents_AC.exp().sum()}

    def _number(self, alignment: Tensor, uniformity: Tensor, image_ids_B: Tensor) -> Tensor:
        """K, on the device: asking for its value would make every step wait for the GPU."""
        pairs = len(image_ids_B)
        # Similarities of opposite vectors could make the sum negative, for which powers and cosines mean nothing.
        maturity = (alignment + uniformity).clamp(min=0.0)
        if self.count == "constant":
            number = alignment.new_full((), self.constant)
        elif self.count == "random":
            number = _draw(image_ids_B)
        elif self.variant == "paper":
            number = (pairs * (maturity * math.pi / 4).cos()).floor()
        else:
            number = (pairs * maturity.pow(_EXPONENT).cos()).trunc() + 1
        return number.clamp(max=pairs - 1).clamp(min=1)

    def _of(self, block: Block, hardest: Tensor) -> Tensor:
        """The anchors' part of one direction's mean over the batch."""
        sims_AC = block.sims_AC
        mined_AC = self._mined(block, hardest)
        logits_AC = (mined_AC + self.margin) / self.temperature
        positive_A1 = block.own(sims_AC).unsqueeze(1) / self.temperature
        if self.variant == "paper":
            # An anchor without negatives has nothing to be contrasted with.
            has_negatives_A1 = mined_AC.isfinite().any(dim=1, keepdim=True)
            logits_AC = torch.where(has_negatives_A1, logits_AC, positive_A1)
            losses_A = logits_AC.logsumexp(dim=1) - positive_A1.squeeze(1)
            return losses_A.where(has_negatives_A1.squeeze(1), 0.0).sum() / sims_AC.shape[1]
        return -torch.cat([positive_A1, logits_AC], dim=1).log_softmax(dim=1)[:, 0].sum() / sims_AC.shape[1]

    def _mined(self, block: Block, hardest: Tensor) -> Tensor:
        """Similarities of each anchor's hardest negatives in descending order, -inf from the K-th on."""
        candidates_AC = block.sims_AC.masked_fill(~block.negative_AC, -torch.inf)
        ranking_AC = candidates_AC.detach()
        if self.variant == "release":
            own_AC = block.own_mask()
            candidates_AC = torch.where(own_AC, block.sims_AC, candidates_AC)
            ranking_AC = ranking_AC.masked_fill(own_AC, 0.0)
        ranked_AC = candidates_AC.gather(1, ranking_AC.argsort(dim=1, descending=True, stable=True))
        beyond_C = torch.arange(ranked_AC.shape[1], device=ranked_AC.device) >= hardest
        return ranked_AC.masked_fill(beyond_C, -torch.inf)


def _draw(image_ids_B: Tensor) -> Tensor:
    """A number in 1 .. B - 1, the same on every process and in a resumed run: the batch itself is the seed.

    Its bits are mixed as splitmix64 does it (Steele, Lea and Flood, OOPSLA 2014), on the device.
    """
    pairs = len(image_ids_B)
    bits = (image_ids_B * torch.arange(1, pairs + 1, device=image_ids_B.device)).sum() + _GAMMA
    for shift, factor in _MIXING:
        bits = (bits ^ (bits >> shift)) * factor
    return bits % max(pairs - 1, 1) + 1
