"""The loss of VSE-C: the triplet loss, and a hinge against the hardest adversarial caption.

b images of this process and B of all, K views, D dimensions.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from vse_core.losses.global_loss import GlobalLoss
from vse_core.losses.hinge import Negatives
from vse_core.losses.result import LossResult
from vse_core.losses.triplet import TripletLoss
from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import best_view


class AdversarialOutput(NamedTuple):
    """Input of VSE-C's loss: unit vectors of this process's images, captions, and hardest adversarials, if any."""

    images_bKD: Tensor
    texts_bD: Tensor
    hardest_bD: Tensor | None


class AdversarialLoss(GlobalLoss):
    """Push each pair above captions that were altered to be wrong, too (VSE-C, Shi et al. 2018).

    To :class:`~vse_core.losses.triplet.TripletLoss`, whose arguments and errors it has, comes
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

    def forward(
        self, images_BKD: Tensor, texts_BD: Tensor, adversarial_BD: Tensor | None, image_ids_B: Tensor
    ) -> LossResult:
        """Loss of B pairs, and its parts: those of the triplet loss, and ``adversarial``, a share of the total.

        ``adversarial_BD`` are unit vectors of each image's hardest adversarial caption; None where there are none.
        ``image_ids_B`` are equal where two captions belong to one image.
        """
        result: LossResult = self.triplet(images_BKD, texts_BD, image_ids_B)
        if adversarial_BD is None:
            return result
        hinges_B = self.triplet.margin + _row_similarities(images_BKD, adversarial_BD)
        hinges_B = (hinges_B - _row_similarities(images_BKD, texts_BD)).clamp(min=0)
        adversarial = hinges_B.mean() if self.triplet.reduction == "mean" else hinges_B.sum()
        return LossResult(result.total + adversarial, result.parts | {"adversarial": adversarial.detach()})


def _row_similarities(images_BKD: Tensor, texts_BD: Tensor) -> Tensor:
    with full_precision(images_BKD):
        sims_BK1 = at_least_float32(images_BKD) @ at_least_float32(texts_BD).unsqueeze(2)
    return best_view(sims_BK1).squeeze(1)
