"""Batch normalisation over the whole global batch."""

import torch
from torch import Tensor, nn

from vse_core.distributed import all_reduce_sum, world_size
from vse_core.precision import at_least_float32


class GlobalBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of rows (M, F) whose statistics span all processes, on CPUs and GPUs alike.

    The result for the global batch does not depend on how many processes share it, which
    ``torch.nn.SyncBatchNorm`` gives on GPUs only.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, rows_MF: Tensor, counted_M: Tensor | None = None) -> Tensor:
        """Normalise rows (M, F); in training with the statistics of all processes' rows, else with the running ones.

        A mask says which rows the statistics count, by default all.
        """
        if self.training and (world_size() > 1 or counted_M is not None):
            return self._normalise(rows_MF, *self._measure(at_least_float32(rows_MF), counted_M))
        return super().forward(rows_MF)

    def _measure(self, rows_MF: Tensor, counted_M: Tensor | None) -> tuple[Tensor, Tensor]:
        # One for each row that counts, zero for the others.
        ones_M1 = rows_MF.new_ones(len(rows_MF), 1) if counted_M is None else counted_M.unsqueeze(1).to(rows_MF.dtype)
        count = all_reduce_sum(ones_M1.sum(dim=0))
        mean_F = all_reduce_sum((ones_M1 * rows_MF).sum(dim=0)) / count
        # A second pass instead of E[x^2] - E[x]^2, which cancels in float32.
        variance_F = all_reduce_sum((ones_M1 * (rows_MF - mean_F)).square().sum(dim=0)) / count
        self._follow(mean_F, variance_F, count)
        return mean_F, variance_F

    @torch.no_grad()
    def _follow(self, mean_F: Tensor, variance_F: Tensor, count: Tensor) -> None:
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean_F, self.momentum)
        self.running_var.lerp_(variance_F * count / (count - 1), self.momentum)

    def _normalise(self, rows_MF: Tensor, mean_F: Tensor, variance_F: Tensor) -> Tensor:
        scale_F = self.weight * (variance_F + self.eps).rsqrt()
        return ((at_least_float32(rows_MF) - mean_F) * scale_F + self.bias).to(rows_MF.dtype)
