"""The interface of losses to the training step: a local batch's output in, the global batch's loss out."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from vse_core.losses.result import LossResult


class GlobalLoss(nn.Module, ABC):
    """A loss over a global batch, of which each process holds a local batch."""

    @abstractmethod
    def from_local_batch(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Return the global batch's loss, the same on every process, of a model's output for the local batch.

        It gathers what it needs of the other processes, in such a way that gradients averaged over the processes (as
        DistributedDataParallel does) are those of one process that holds the whole batch. ``image_ids_b`` are equal
        where two captions belong to one image; ``counts`` are the pairs of each process, in order.
        """
