"""Orthogonality of an image's views, added to a loss of embeddings."""

from typing import Any

from torch import Tensor
from typing_extensions import override

from vse_core.losses.global_loss import GlobalLoss, LossResult
from vse_core.losses.views import mean_between_views


class OrthogonalViewsLoss(GlobalLoss):
    """A loss, and how far the views of an image are from being orthogonal: ``loss + weight * mean cos(v_k, v_l)^2``.

    The mean is over the images of the global batch, one for each pair, and over their ordered pairs of different views
    (no paper has it). It lies in [0, 1] whatever the batch: next to a loss that is a mean over the batch it does not
    depend on B; next to one that is a sum a pair weighs ``weight / B``.

    Args:
        loss: of a model's output whose first part is images (b, K, D).
        weight: of the term, positive; anything else is a ValueError.
    """

    def __init__(self, loss: GlobalLoss, weight: float) -> None:
        super().__init__()
        if weight <= 0:
            raise ValueError(f"the weight of the views' orthogonality must be positive, got {weight}")
        self.loss = loss
        self.weight = weight

    @override
    def from_local_batch(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The sum of both; to the loss's parts come ``pair_loss``, its total, and ``view_orthogonality``, the mean.

        Images of one view are a ValueError.
        """
        images_bKD = output[0]
        if images_bKD.shape[1] == 1:
            raise ValueError("one view of an image is orthogonal to no other: give images several views")
        result = self.loss.from_local_batch(output, image_ids_b, counts)
        mean = mean_between_views(images_bKD, sum(counts), lambda cosines_bKK: cosines_bKK.square().sum())
        parts = {"pair_loss": result.total.detach(), "view_orthogonality": mean.detach()}
        return LossResult(result.total + self.weight * mean, result.parts | parts)
