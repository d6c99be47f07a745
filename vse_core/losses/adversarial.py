"""The loss of VSE-C: the triplet loss, and a hinge against the hardest adversarial caption.

b images of this process, K views, D dimensions.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from vse_core.distributed import all_reduce_sum
from vse_core.losses.global_pairs import GlobalLoss, LossResult
from vse_core.losses.hinge import Negatives, TripletLoss
from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import best_view


class AdversarialOutput(NamedTuple):
    """Input of VSE-C's loss: unit vectors of this process's images, captions, and hardest adversarials, if any."""

    images_bKD: Tensor
    texts_bD: Tensor
    hardest_bD: Tensor | None


class AdversarialLoss(GlobalLoss):
    """Push each pair above captions that were altered to be wrong, too (VSE-C, Shi et al. 2018).

    To :class:`~vse_core.losses.hinge.TripletLoss`, whose arguments it has, comes
    ``[margin + max_s s(i, s) - s(i, c)]+`` for every image i and its caption c, where s runs over the batch's
    adversarial captions. Without them, as VSE-C begins for an epoch, it is the triplet loss alone.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "sum",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__()
        self.triplet = TripletLoss(margin, negatives, reduction, mask_same_image)

    def from_local_batch(self, output: AdversarialOutput, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The global batch's loss; to the parts of the triplet loss comes ``adversarial``, a share of the total.

        Adversarial captions are those of all processes or of none.
        """
        images_bKD, texts_bD, adversarial_bD = output
        result = self.triplet.from_local_batch((images_bKD, texts_bD), image_ids_b, counts)
        if adversarial_bD is None:
            return result
        hinges_b = self.triplet.margin + _row_similarities(images_bKD, adversarial_bD)
        hinges_b = (hinges_b - _row_similarities(images_bKD, texts_bD)).clamp(min=0)
        divisor = sum(counts) if self.triplet.reduction == "mean" else 1
        adversarial = all_reduce_sum(hinges_b.sum()) / divisor
        return LossResult(result.total + adversarial, result.parts | {"adversarial": adversarial.detach()})


def _row_similarities(images_BKD: Tensor, texts_BD: Tensor) -> Tensor:
    with full_precision(images_BKD):
        sims_BK1 = at_least_float32(images_BKD) @ at_least_float32(texts_BD).unsqueeze(2)
    return best_view(sims_BK1).squeeze(1)
