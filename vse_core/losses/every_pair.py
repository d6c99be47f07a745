"""A decision about every pair of the batch, added to a loss of more than images and captions."""

from typing import Any

from torch import Tensor
from typing_extensions import override

from vse_core.losses.global_loss import GlobalLoss, LossResult
from vse_core.losses.sigmoid import SigmoidLoss


class EveryPairLoss(GlobalLoss):
    """A loss, and SigLIP's of the same images and captions: ``loss + weight * sigmoid loss`` (no paper has it).

    The hardest negatives of a hinge are one caption and one image of the batch for each pair; here all of them count.

    Args:
        loss: of a model's output that has ``embeddings``, its images and captions.
        sigmoid: of these. What it learns may be shared between such losses.
        weight: of the sigmoid loss, which is a mean over the batch's pairs; one that is not positive is a ValueError.
    """

    def __init__(self, loss: GlobalLoss, sigmoid: SigmoidLoss, weight: float) -> None:
        super().__init__()
        if weight <= 0:
            raise ValueError(f"the weight of the loss over every pair must be positive, got {weight}")
        self.loss = loss
        self.sigmoid = sigmoid
        self.weight = weight

    @override
    def from_local_batch(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The sum of both; to the loss's parts come ``every_pair``, the sigmoid loss, and what that has learned."""
        result = self.loss.from_local_batch(output, image_ids_b, counts)
        added = self.sigmoid.from_local_batch(output.embeddings, image_ids_b, counts)
        parts = result.parts | {"every_pair": added.total.detach()}
        parts |= {name: value.detach() for name, value in self.sigmoid.learned_values().items()}
        return LossResult(result.total + self.weight * added.total, parts)
