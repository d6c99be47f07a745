"""Common base of the losses over pairs of embeddings: calling convention, negatives and reported parts."""

import math
from abc import abstractmethod
from typing import get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from vse_core.losses.global_loss import GlobalLoss
from vse_core.losses.global_pairs import GlobalPairs, pair_similarities
from vse_core.losses.result import LossResult
from vse_core.losses.views import Bound, check_bound, view_diagnostics

# The total, and the parts of it that this loss alone reports.
TotalAndParts = tuple[Tensor, dict[str, Tensor]]


class PairLoss(GlobalLoss):
    """A loss over B pairs of an image and a caption, to which the batch's other captions and images are negatives."""

    def __init__(self, mask_same_image: bool = False) -> None:
        super().__init__()
        self.mask_same_image = mask_same_image

    def forward(self, images_BKD: Tensor, texts_BD: Tensor, image_ids_B: Tensor) -> LossResult:
        """Loss of B pairs; row i of the images and of the texts, all of unit length, belong together.

        ``image_ids_B`` are equal where two captions belong to one image. Its parts are what the loss is made of (see
        its class), the mean similarity of pairs and of their hardest negatives, and with several views their
        diagnostics.
        """
        return self.from_local_batch((images_BKD, texts_BD), image_ids_B, [len(image_ids_B)])

    @override
    def from_local_batch(self, output: tuple[Tensor, Tensor], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        pairs = GlobalPairs(*output, image_ids_b, counts, self.mask_same_image)
        total, parts = self.total_and_parts(pairs)
        parts |= pair_similarities(pairs) | view_diagnostics(pairs)
        return LossResult(total, {name: part.detach() for name, part in parts.items()})

    @abstractmethod
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """The loss of a global batch, the same on every process."""


# The largest factor of similarities that is learned (CLIP, section 2.5), if it does not begin with a larger one.
_LARGEST_SCALE = 100.0


class SoftmaxLoss(PairLoss):
    """A loss over similarities divided by a temperature, which K views enter through a bound (MV-VSE, section 3.3).

    Where it is learned, the logarithm of its inverse, ``logit_scale``, is a parameter, at most ln 100 (CLIP, section
    2.5). The gradient of a loss's own parameters is the same on every process.
    """

    logit_scale: nn.Parameter | None

    def __init__(
        self, temperature: float, mask_same_image: bool, bound: Bound, lam: float, learned: bool = False
    ) -> None:
        super().__init__(mask_same_image)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        check_bound(bound, lam, get_args(Bound))
        self.temperature = temperature
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learned else None
        self.bound: Bound = bound
        self.lam = lam

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
