"""Bases of losses: a local batch's output in, the global batch's loss out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from vse_core.losses.global_pairs import GlobalPairs, pair_similarities

# The total, and the parts of it that this loss alone reports.
TotalAndParts = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True)
class LossResult:
    """A loss: the scalar to minimise, in float32, and named scalars that it is made of, detached, for logging."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


class GlobalLoss(nn.Module, ABC):
    """A loss over a global batch, of which each process holds a local batch."""

    def forward(self, *output_and_ids: Any) -> LossResult:
        """Loss of a batch that one process holds: of the model's output, or its parts, and the image ids."""
        *output, image_ids_B = output_and_ids
        return self.from_local_batch(output[0] if len(output) == 1 else output, image_ids_B, [len(image_ids_B)])

    @abstractmethod
    def from_local_batch(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Return the global batch's loss, the same on every process, of a model's output for the local batch.

        It gathers what it needs of the other processes, in such a way that gradients averaged over the processes (as
        DistributedDataParallel does) are those of one process that holds the complete batch. ``image_ids_b`` are equal
        for captions of one image; ``counts`` are the pairs of each process, in order.
        """


class PairLoss(GlobalLoss):
    """A loss over B pairs of an image and a caption, to which the batch's other captions and images are negatives."""

    def __init__(self, mask_same_image: bool = False) -> None:
        super().__init__()
        self.mask_same_image = mask_same_image

    def from_local_batch(self, output: tuple[Tensor, Tensor], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Loss of images (b, K, D) and texts (b, D), all of unit length, of which the same rows belong together.

        Its parts are what the loss is made of (see its class), and the mean similarity of pairs and of their hardest
        negatives.
        """
        pairs = GlobalPairs(*output, image_ids_b, counts, self.mask_same_image)
        total, parts = self.total_and_parts(pairs)
        parts |= pair_similarities(pairs)
        return LossResult(total, {name: part.detach() for name, part in parts.items()})

    @abstractmethod
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """The loss of a global batch, the same on every process."""
