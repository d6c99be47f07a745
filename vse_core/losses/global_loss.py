"""How a step calls its loss: with what the model gave for this process's share, for the loss of the global batch."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from vse_core.losses.result import LossResult


class GlobalLoss(nn.Module, ABC):
    """A loss over a global batch that several processes hold together, each a share of it."""

    @abstractmethod
    def over_processes(self, output: Any, image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """The global batch's loss, the same on every process.

        It gathers whatever it needs of the other shares, in such a way that gradients averaged over the processes (as
        DistributedDataParallel does) are those of one process that holds the whole batch.

        Args:
            output: what the model gave for this process's share; each loss says which model it belongs to.
            image_ids_b: (b,) integers, equal where two captions belong to one image.
            counts: pairs of each process, in order; their sum is the global batch.
        """
