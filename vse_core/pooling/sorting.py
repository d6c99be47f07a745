"""Weighted sums of sorted sets: the one place that sorts, shared by every aggregator that pools by rank."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vse_core.pooling.masks import valid_mask
from vse_core.precision import at_least_float32


def rank_weighted_sum(features_BND: Tensor, lengths_B: Tensor, weights_BN: Tensor) -> Tensor:
    """Sort every dimension of every set in descending order, then sum its ranks with the given weights.

    ``out[b, d] = sum_k weights[b, k] * sorted(features[b, :length_b, d], descending)[k]``: equation (2) of
    VSE-infinity. Padded rows sort behind the real ones and count nothing, whatever they hold.

    Args:
        features_BND: (B, N, D), any floating type; the sum is taken in float32.
        lengths_B: (B,) number of real rows.
        weights_BN: (B, N) weight of each rank; entries at or beyond the length are ignored.

    Returns:
        (B, D) in float32, differentiable in the features and the weights.
    """
    valid_BN = valid_mask(features_BND, lengths_B)
    # The set runs along the last axis: sorting contiguous runs is several times faster than sorting with a stride.
    features_BDN = (
        at_least_float32(features_BND).masked_fill(~valid_BN.unsqueeze(-1), -float("inf")).transpose(1, 2).contiguous()
    )
    weights_BN = weights_BN.to(features_BDN.dtype).masked_fill(~valid_BN, 0.0)
    pooled: Tensor = _RankWeightedSum.apply(features_BDN, weights_BN)
    return pooled


class _RankWeightedSum(torch.autograd.Function):
    """The sorted sum with its own backward: only the order is kept, the sorted copy is rebuilt when it is needed."""

    @staticmethod
    def forward(ctx: Any, features_BDN: Tensor, weights_BN: Tensor) -> Tensor:
        order_BDN = _descending_order(features_BDN)
        ranked_BDN = features_BDN.gather(-1, order_BDN)
        # A padded row is -inf and its weight 0: their product would be NaN.
        ranked_BDN = ranked_BDN.masked_fill_((weights_BN == 0).unsqueeze(1) & ranked_BDN.isneginf(), 0.0)
        ctx.save_for_backward(order_BDN, ranked_BDN, weights_BN)
        return torch.bmm(ranked_BDN, weights_BN.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        order_BDN, ranked_BDN, weights_BN = ctx.saved_tensors
        grad_BD = grads[0].contiguous()
        grad_features = grad_weights = None
        if ctx.needs_input_grad[0]:
            spread_BDN = grad_BD.unsqueeze(-1) * weights_BN.unsqueeze(1)
            grad_features = torch.empty_like(spread_BDN).scatter_(-1, order_BDN, spread_BDN)
        if ctx.needs_input_grad[1]:
            grad_weights = torch.bmm(grad_BD.unsqueeze(1), ranked_BDN).squeeze(1)
        return grad_features, grad_weights


def _descending_order(values: Tensor) -> Tensor:
    """Indices that sort the last axis in descending order; NumPy's vectorised argsort is the fastest on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.argsort(values.neg().numpy(), axis=-1))
    return values.argsort(dim=-1, descending=True)
