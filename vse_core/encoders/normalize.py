"""Batch normalisation over the global batch."""

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
        if not self.training or (world_size() == 1 and counted_M is None):
            return super().forward(rows_MF)
        values_MF = at_least_float32(rows_MF)
        # One for each row that counts, zero for the others.
        counted_M = values_MF.new_ones(len(rows_MF)) if counted_M is None else counted_M
        ones_M1 = counted_M.unsqueeze(1).to(values_MF.dtype)
        count = all_reduce_sum(ones_M1.sum(dim=0))
        mean_F = all_reduce_sum((ones_M1 * values_MF).sum(dim=0)) / count
        # A second pass instead of E[x^2] - E[x]^2, which cancels in float32.
        variance_F = all_reduce_sum((ones_M1 * (values_MF - mean_F)).square().sum(dim=0)) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean_F, self.momentum)
            self.running_var.lerp_(variance_F * count / (count - 1), self.momentum)
        scale_F = self.weight * (variance_F + self.eps).rsqrt()
        return ((values_MF - mean_F) * scale_F + self.bias).to(rows_MF.dtype)


class Center(nn.Module):
    """Subtract a mean that is stored with the model, ``mean_F``; zero until training begins.

    What all images have in common says nothing about any of them, and is a channel by which a text's similarity is the
    same for every image: UniVSE learns in it how often words occur together, instead of looking (docs/faq.md).
    Without `is_used` there is no buffer, and features stay as they are.
    """

    mean_F: Tensor | None

    def __init__(self, feature_dim: int, is_used: bool) -> None:
        super().__init__()
        self.register_buffer("mean_F", torch.zeros(feature_dim) if is_used else None)

    def forward(self, features_BNF: Tensor, mask_BN: Tensor) -> Tensor:
        """Return features (B, N, F) around the mean; padding, which lies outside the mask (B, N), becomes zero."""
        if self.mean_F is None:
            return features_BNF
        return (features_BNF - self.mean_F).masked_fill(~mask_BN.unsqueeze(-1), 0.0)
