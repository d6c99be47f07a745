"""Sorted sets: the one place that sorts, shared by every aggregator that looks at ranks.

B sets, N padded set elements, n real elements of one set, D dimensions, K weightings of the ranks.

On a CPU, float32 sets are sorted by *keys*: a float64 has 29 bits more than the float32 it was made from, and the
lowest of them hold the element's place in the set. One vectorised sort of the keys then yields both the values
(rounding a key to float32 gives its value back exactly) and the order that gradients need, in less than half the time
of an argsort. The sets are taken one after the other: a set fits into the cache, and its padding is never touched.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vse_core.pooling.masks import valid_mask
from vse_core.precision import at_least_float32, full_precision


def rank_weighted_sum(features_BND: Tensor, lengths_B: Tensor, weights_BKN: Tensor) -> Tensor:
    """Sort every dimension of every set in descending order, then sum its ranks with each of K weightings.

    ``out[b, k, d] = sum_r weights[b, k, r] * sorted(features[b, :length_b, d], descending)[r]``: equation (2) of
    VSE-infinity for K weightings that share one sort. Padded rows count nothing, whatever they hold.

    Args:
        features_BND: (B, N, D), any floating type; sums are taken in float32.
        lengths_B: (B,) number of real rows, at least 1.
        weights_BKN: (B, K, N) weight of each rank; entries at or beyond the length are ignored.

    Returns:
        (B, K, D) in at least float32, differentiable in the features and the weights.
    """
    features_BND = at_least_float32(features_BND)
    weights_BKN = weights_BKN.to(features_BND.dtype)
    with full_precision(features_BND):
        if _sorts_by_key(features_BND):
            sum_ranks = _RankWeightedSum.apply if _needs_grad(features_BND, weights_BKN) else _rank_weighted_sum
            pooled_BKD: Tensor = sum_ranks(features_BND, weights_BKN, lengths_B.tolist())
            return pooled_BKD
        padded_B1N = ~valid_mask(features_BND, lengths_B).unsqueeze(1)
        return weights_BKN.masked_fill(padded_B1N, 0.0) @ _sort_whole(features_BND, lengths_B)


def sort_sets(features_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Sort every dimension of every set in descending order.

    Args:
        features_BND: (B, N, D), any floating type.
        lengths_B: (B,) number of real rows, at least 1.

    Returns:
        (B, N, D) in at least float32: the largest values first, zeros at and beyond the length; differentiable.
    """
    features_BND = at_least_float32(features_BND)
    if _sorts_by_key(features_BND):
        sort = _SortSets.apply if _needs_grad(features_BND) else _sort_sets
        ranked_BND: Tensor = sort(features_BND, lengths_B.tolist())
        return ranked_BND
    return _sort_whole(features_BND, lengths_B)


def _sorts_by_key(features_BND: Tensor) -> bool:
    return features_BND.device.type == "cpu" and features_BND.dtype == torch.float32


def _needs_grad(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _sort_whole(features_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Sort with PyTorch's own sort and gradient, padding behind the real rows: for GPUs, and for float64."""
    valid_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
    # The set runs along the last axis: sorting contiguous runs is several times faster than sorting with a stride.
    columns_BDN = features_BND.masked_fill(~valid_BN1, -float("inf")).transpose(1, 2).contiguous()
    ranked_BND = columns_BDN.sort(dim=-1, descending=True).values.transpose(1, 2)
    return ranked_BND.masked_fill(~valid_BN1, 0.0)


def _rank_weighted_sum(features_BND: Tensor, weights_BKN: Tensor, lengths: Sequence[int]) -> Tensor:
    """Without a gradient the order is not needed, and the values alone sort faster."""
    pooled_BKD = features_BND.new_empty(len(lengths), weights_BKN.shape[1], features_BND.shape[2])
    for sample, length in enumerate(lengths):
        ascending_Dn = _sorted_columns(features_BND[sample, :length])
        pooled_BKD[sample] = weights_BKN[sample, :, :length].flip(-1) @ ascending_Dn.t()
    return pooled_BKD


def _sort_sets(features_BND: Tensor, lengths: Sequence[int]) -> Tensor:
    ranked_BND = torch.zeros_like(features_BND)
    for sample, length in enumerate(lengths):
        ranked_BND[sample, :length] = _sorted_columns(features_BND[sample, :length]).flip(-1).t()
    return ranked_BND


class _RankWeightedSum(torch.autograd.Function):
    """Sort and sum set by set; the sorted keys are all that the backward needs."""

    @staticmethod
    def forward(ctx: Any, features_BND: Tensor, weights_BKN: Tensor, lengths: Sequence[int]) -> Tensor:
        features_BND, weights_BKN = features_BND.detach(), weights_BKN.detach()
        pooled_BKD = features_BND.new_empty(len(lengths), weights_BKN.shape[1], features_BND.shape[2])
        keys = _empty_keys(features_BND, lengths)
        for sample, keys_Dn in enumerate(_key_blocks(keys, lengths)):
            length = lengths[sample]
            _sort_keys(features_BND[sample, :length], keys_Dn)
            # The numbers in the keys are far below float32's precision: no need to round before the sum.
            pooled_BKD[sample] = weights_BKN[sample, :, :length].flip(-1).double() @ keys_Dn.t()
        ctx.save_for_backward(keys, weights_BKN)
        ctx.lengths, ctx.shape = lengths, features_BND.shape
        return pooled_BKD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        keys, weights_BKN = ctx.saved_tensors
        grad_BKD = grads[0]
        grad_features = grad_BKD.new_zeros(ctx.shape) if ctx.needs_input_grad[0] else None
        grad_weights = torch.zeros_like(weights_BKN) if ctx.needs_input_grad[1] else None
        for sample, keys_Dn in enumerate(_key_blocks(keys, ctx.lengths)):
            length = ctx.lengths[sample]
            if grad_features is not None:
                spread_Dn = grad_BKD[sample].t() @ weights_BKN[sample, :, :length].flip(-1)
                grad_features[sample, :length] = _unsort(spread_Dn, keys_Dn).t()
            if grad_weights is not None:
                grad_weights[sample, :, :length] = (grad_BKD[sample].double() @ keys_Dn).flip(-1)
        return grad_features, grad_weights, None


class _SortSets(torch.autograd.Function):
    """Sort set by set; the gradient goes back to where the values came from."""

    @staticmethod
    def forward(ctx: Any, features_BND: Tensor, lengths: Sequence[int]) -> Tensor:
        features_BND = features_BND.detach()
        ranked_BND = torch.zeros_like(features_BND)
        keys = _empty_keys(features_BND, lengths)
        for sample, keys_Dn in enumerate(_key_blocks(keys, lengths)):
            _sort_keys(features_BND[sample, : lengths[sample]], keys_Dn)
            ranked_BND[sample, : lengths[sample]] = keys_Dn.float().flip(-1).t()
        ctx.save_for_backward(keys)
        ctx.lengths = lengths
        return ranked_BND

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_BND = grads[0]
        grad_features = torch.zeros_like(grad_BND)
        for sample, keys_Dn in enumerate(_key_blocks(ctx.saved_tensors[0], ctx.lengths)):
            length = ctx.lengths[sample]
            spread_Dn = grad_BND[sample, :length].t().contiguous().flip(-1)
            grad_features[sample, :length] = _unsort(spread_Dn, keys_Dn).t()
        return grad_features, None


def _sorted_columns(rows_nD: Tensor) -> Tensor:
    """Columns of a set in ascending order: (D, n)."""
    # A copy even where the transpose is contiguous already: NumPy's sort, vectorised, works in place.
    columns_Dn = rows_nD.detach().t().clone(memory_format=torch.contiguous_format)
    columns_Dn.numpy().sort(axis=-1)
    return columns_Dn


def _empty_keys(features_BND: Tensor, lengths: Sequence[int]) -> Tensor:
    return torch.empty(sum(lengths) * features_BND.shape[2], dtype=torch.float64)


def _key_blocks(keys: Tensor, lengths: Sequence[int]) -> Iterator[Tensor]:
    """The keys of each set, (D, n), as views of the one buffer that holds them all without padding."""
    width = len(keys) // sum(lengths)
    start = 0
    for length in lengths:
        yield keys[start : start + width * length].view(width, length)
        start += width * length


def _sort_keys(rows_nD: Tensor, keys_Dn: Tensor) -> None:
    """Fill ``keys_Dn`` with the ascending values of every column, each with its row number in the lowest bits."""
    keys_Dn.copy_(rows_nD.t().contiguous())
    keys_Dn.view(torch.int64).bitwise_or_(torch.arange(len(rows_nD)))
    keys_Dn.numpy().sort(axis=-1)


def _unsort(ascending_Dn: Tensor, keys_Dn: Tensor) -> Tensor:
    """Put values in the order of sorted keys back to the row numbers that the keys hold."""
    mask = (1 << (keys_Dn.shape[1] - 1).bit_length()) - 1
    return torch.empty_like(ascending_Dn).scatter_(-1, keys_Dn.view(torch.int64) & mask, ascending_Dn)
