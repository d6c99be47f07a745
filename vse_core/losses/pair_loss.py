"""Common base of the losses over pairs of embeddings: calling convention, negatives and reported parts."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from vse_core.losses.global_loss import GlobalLoss, LossResult
from vse_core.losses.global_pairs import CAPTIONS, IMAGES, Block, GlobalPairs, pair_similarities
from vse_core.losses.views import Bound, bound_over_views, check_bound, view_diagnostics

# The total, and the parts of it that this loss alone reports.
TotalAndParts = tuple[Tensor, dict[str, Tensor]]


class PairLoss(GlobalLoss):
    """A loss over B pairs of an image and a caption, to which the batch's other captions and images are negatives."""

    def __init__(self, mask_same_image: bool = False) -> None:
        super().__init__()
        self.mask_same_image = mask_same_image

    @override
    def from_local_batch(self, output: tuple[Tensor, Tensor], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Loss of images (b, K, D) and texts (b, D), all of unit length, of which the same rows belong together.

        Its parts are what the loss is made of (see its class), the mean similarity of pairs and of their hardest
        negatives, and with several views their diagnostics.
        """
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
    2.5).

    Args:
        temperature: divisor of the similarities.
        mask_same_image: do not take other captions of the same image as negatives.
        bound: how K views enter, ``max``, ``avg``, ``up`` or ``joint``
            (:func:`~vse_core.losses.views.bound_over_views`); without effect for one view.
        lam: weight of ``max`` in ``joint``.
        learned: whether the temperature is learned.
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

    def summed(
        self,
        pairs: GlobalPairs,
        loss: Callable[[Block, Tensor], Tensor],
        sides: tuple[bool, ...] = (IMAGES, CAPTIONS),
    ) -> Tensor:
        """Sum a loss, a function of a block and of its similarities (A, C) of one pairing of views, over all blocks."""
        sums = pairs.sums(
            lambda block: {"loss": bound_over_views(partial(loss, block), block, self.bound, self.lam)}, sides
        )
        return sums["loss"]

    def learned_values(self) -> dict[str, Tensor]:
        """Return what has been learned, for reports: the temperature."""
        return {} if self.logit_scale is None else {"temperature": (-self.logit_scale).exp()}
