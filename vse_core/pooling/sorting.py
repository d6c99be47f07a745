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

from vse_core.precision import at_least_float32, full_precision
from vse_core.static_shapes import has_static_shapes


def rank_weighted_sum(features_BND: Tensor, lengths_B: Tensor, weights_BKN: Tensor) -> Tensor:
    """Sort every dimension of every set in descending order, then sum its ranks with each of K weightings.

    ``out[b, k, d] = sum_r weights[b, k, r] * sorted(features[b, :length_b, d], descending)[r]``: equation (2) of
    VSE-infinity for K weightings that share one sort. Padded rows count nothing, whatever they hold, nor do weights at
    or beyond the length. Returns (B, K, D) in at least float32, differentiable in the features and the weights.
    """
    features_BND = at_least_float32(features_BND)
    weights_BKN = weights_BKN.to(features_BND.dtype)
    with full_precision(features_BND):
        if _sorts_by_key(features_BND):
            needs_grad = torch.is_grad_enabled() and (features_BND.requires_grad or weights_BKN.requires_grad)
            sum_ranks = _RankWeightedSum.apply if needs_grad else _rank_weighted_sum
            # Keys ascend, so the weights are turned round to meet them.
            backwards_BN = (lengths_B.unsqueeze(-1) - 1 - torch.arange(weights_BKN.shape[2])).clamp(min=0)
            ascending_BKN = weights_BKN.gather(-1, backwards_BN.unsqueeze(1).expand_as(weights_BKN))
            return sum_ranks(features_BND, ascending_BKN, lengths_B.tolist())
        return weights_BKN @ _sort_whole(features_BND, lengths_B)


def sort_sets(features_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Sort every dimension of every set in descending order, in at least float32: zeros at and beyond the length."""
    features_BND = at_least_float32(features_BND)
    if _sorts_by_key(features_BND):
        ranked_BND: Tensor = _SortSets.apply(features_BND, lengths_B.tolist())
        return ranked_BND
    return _sort_whole(features_BND, lengths_B)


def _sorts_by_key(features_BND: Tensor) -> bool:
    return features_BND.dtype == torch.float32 and not has_static_shapes(features_BND)


def _sort_whole(features_BND: Tensor, lengths_B: Tensor) -> Tensor:
    """Sort with PyTorch's own sort and gradient, padding behind the real rows: for GPUs, and for float64."""
    ranks_N = torch.arange(features_BND.shape[1], device=features_BND.device)
    is_padding_BN1 = (ranks_N >= lengths_B.unsqueeze(-1)).unsqueeze(-1)
    # The set runs along the last axis: sorting contiguous runs is several times faster than sorting with a stride.
    columns_BDN = features_BND.masked_fill(is_padding_BN1, -float("inf")).transpose(1, 2).contiguous()
    ranked_BND = columns_BDN.sort(dim=-1, descending=True).values.transpose(1, 2)
    return ranked_BND.masked_fill(is_padding_BN1, 0.0)


def _rank_weighted_sum(features_BND: Tensor, ascending_BKN: Tensor, lengths: Sequence[int]) -> Tensor:
    # Without a gradient the order is not needed, and the values alone sort faster.
    pooled_BKD = features_BND.new_empty(len(lengths), ascending_BKN.shape[1], features_BND.shape[2])
    for sample, length in enumerate(lengths):
        # A copy even if the transpose is contiguous already: NumPy's sort, vectorised, works in place.
        values_Dn = features_BND[sample, :length].detach().t().clone(memory_format=torch.contiguous_format)
        values_Dn.numpy().sort(axis=-1)
        pooled_BKD[sample] = ascending_BKN[sample, :, :length] @ values_Dn.t()
    return pooled_BKD


class _RankWeightedSum(torch.autograd.Function):
    """Sort and sum set by set; the sorted values and their order are kept for the gradients."""

    @staticmethod
    def forward(ctx: Any, features_BND: Tensor, ascending_BKN: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the weighted sums (B, K, D) of the sorted values."""
        pooled_BKD = features_BND.new_empty(len(lengths), ascending_BKN.shape[1], features_BND.shape[2])
        sorter = _KeySorter(features_BND, lengths)
        values = features_BND.new_empty(sorter.order.shape)
        for sample, values_Dn in enumerate(_sets(values, lengths)):
            values_Dn.copy_(sorter.sort(sample))
            pooled_BKD[sample] = ascending_BKN[sample, :, : lengths[sample]] @ values_Dn.t()
        ctx.save_for_backward(ascending_BKN, values, sorter.order)
        ctx.lengths, ctx.shape = lengths, features_BND.shape
        return pooled_BKD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Return the gradients of the features and of the weights."""
        ascending_BKN, values, order = ctx.saved_tensors
        grad_BKD = grads[0]
        grad_features = grad_weights = None
        if ctx.needs_input_grad[0]:
            grad_features = grad_BKD.new_zeros(ctx.shape)
            for sample, order_Dn in enumerate(_sets(order, ctx.lengths)):
                length = ctx.lengths[sample]
                spread_Dn = grad_BKD[sample].t() @ ascending_BKN[sample, :, :length]
                grad_features[sample, :length] = _unsort(spread_Dn, order_Dn).t()
        if ctx.needs_input_grad[1]:
            grad_weights = torch.zeros_like(ascending_BKN)
            for sample, values_Dn in enumerate(_sets(values, ctx.lengths)):
                grad_weights[sample, :, : ctx.lengths[sample]] = grad_BKD[sample] @ values_Dn
        return grad_features, grad_weights, None


class _SortSets(torch.autograd.Function):
    """Sort set by set; the gradient goes back to where the values came from."""

    @staticmethod
    def forward(ctx: Any, features_BND: Tensor, lengths: Sequence[int]) -> Tensor:
        ranked_BND = torch.zeros_like(features_BND)
        sorter = _KeySorter(features_BND, lengths)
        for sample, length in enumerate(lengths):
            ranked_BND[sample, :length] = sorter.sort(sample).float().flip(-1).t()
        ctx.save_for_backward(sorter.order)
        ctx.lengths = lengths
        return ranked_BND

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_BND = grads[0]
        grad_features = torch.zeros_like(grad_BND)
        for sample, order_Dn in enumerate(_sets(ctx.saved_tensors[0], ctx.lengths)):
            length = ctx.lengths[sample]
            ascending_Dn = grad_BND[sample, :length].t().contiguous().flip(-1)
            grad_features[sample, :length] = _unsort(ascending_Dn, order_Dn).t()
        return grad_features, None


class _KeySorter:
    """Sorts sets one by one in a small buffer; ``order`` has the row numbers of the ascending values, (D, n) a set."""

    def __init__(self, features_BND: Tensor, lengths: Sequence[int]) -> None:
        self.features_BND, self.lengths = features_BND.detach(), lengths
        width, longest = features_BND.shape[2], max(lengths)
        self.row_numbers = torch.arange(longest)
        self.keys = torch.empty(width * longest, dtype=torch.float64)
        self.numbers = torch.empty(width * longest, dtype=torch.int64)
        self.order = torch.empty(sum(lengths) * width, dtype=torch.uint8 if longest <= 256 else torch.int32)
        self.orders = list(_sets(self.order, lengths))

    def sort(self, sample: int) -> Tensor:
        """Return the ascending keys (D, n) of every column of a set, valid until the next call."""
        length = self.lengths[sample]
        columns_Dn = self.features_BND[sample, :length].t().contiguous()
        keys_Dn = self.keys[: columns_Dn.numel()].view(-1, length)
        bits_Dn = keys_Dn.view(torch.int64)
        keys_Dn.copy_(columns_Dn)
        bits_Dn.bitwise_or_(self.row_numbers[:length])
        keys_Dn.numpy().sort(axis=-1)
        mask = (1 << (length - 1).bit_length()) - 1
        numbers_Dn = self.numbers[: columns_Dn.numel()].view(-1, length)
        self.orders[sample].copy_(torch.bitwise_and(bits_Dn, mask, out=numbers_Dn))
        return keys_Dn


def _sets(flat: Tensor, lengths: Sequence[int]) -> Iterator[Tensor]:
    """The (D, n) of each set, as views of the one vector that holds them without padding."""
    width = len(flat) // sum(lengths)
    for length, block in zip(lengths, flat.split([width * length for length in lengths]), strict=True):
        yield block.view(width, length)


def _unsort(ascending_Dn: Tensor, order_Dn: Tensor) -> Tensor:
    """Put values of ascending rank back to the rows that they came from."""
    return torch.empty_like(ascending_Dn).scatter_(-1, order_Dn.long(), ascending_Dn)
