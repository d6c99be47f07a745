"""A GRU over packed sequences on the CPU, with a backward pass of its own.

PyTorch's takes the gradient of the recurrent weights step by step, each with a matrix product of few rows and a sum as
large as the weights; here all steps share one product, and an element that occurs often is projected once. T packed
elements, N of them at a step, U distinct ones, E width of an element, H width of the GRU, G = 3 H of its gates.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import override

from vse_core.precision import product_type
from vse_core.products import product


def packed_gru_states(gru: nn.GRU, elements_UE: Tensor, packed: PackedSequence) -> Tensor:
    """Return the states (T, H) of a GRU of one layer in the order of the packed rows, both directions' averaged.

    ``packed`` holds which row of ``elements_UE`` each of the T elements is. The states are those of
    ``gru(elements_UE[packed])``, up to rounding.
    """
    # Autocast computes products in its type; everything else stays in float32.
    of_products = product_type(elements_UE, elements_UE.dtype)
    sizes = packed.batch_sizes.tolist()
    states: list[Tensor] = [
        _PackedGRU.apply(elements_UE, packed.data, sizes, bool(reverse), of_products, *weights)
        for reverse, weights in enumerate(gru.all_weights)
    ]
    return states[0] if len(states) == 1 else (states[0] + states[1]) / 2


class _PackedGRU(torch.autograd.Function):
    """One direction: ``h' = n + z * (h - n)``, ``n = tanh(i_n + r * h_n)``, as PyTorch defines it."""

    @staticmethod
    @override
    def forward(
        ctx: Any,
        elements_UE: Tensor,
        rows_T: Tensor,
        sizes: list[int],
        reverse: bool,
        of_products: torch.dtype,
        input_weight: Tensor,
        state_weight: Tensor,
        input_bias: Tensor,
        state_bias: Tensor,
    ) -> Tensor:
        width = state_weight.shape[1]
        tensors = (elements_UE, input_weight, state_weight)
        elements_UE, input_weight, weight = (each.to(of_products) for each in tensors)
        gates_TG = product(elements_UE, input_weight.t()).to(state_bias.dtype).add_(input_bias)[rows_T]
        candidates_TH, before_TH = (gates_TG.new_empty(len(gates_TG), width) for _ in range(2))
        states_TH = torch.empty_like(before_TH)
        state_nH = gates_TG.new_zeros(max(sizes, default=0), width)
        for rows in _steps(sizes, reverse):
            count = rows.stop - rows.start
            state_NH = state_nH[:count]
            before_TH[rows] = state_NH
            from_state_NG = product(state_NH.to(of_products), weight.t()).to(state_bias.dtype).add_(state_bias)
            candidates_TH[rows] = from_state_NG[:, 2 * width :]
            reset_update_NG = gates_TG[rows, : 2 * width]
            reset_update_NG.add_(from_state_NG[:, : 2 * width]).sigmoid_()
            reset_NH, update_NH = reset_update_NG.chunk(2, dim=1)
            new_NH = gates_TG[rows, 2 * width :].addcmul_(reset_NH, candidates_TH[rows]).tanh_()
            torch.lerp(new_NH, state_NH, update_NH, out=states_TH[rows])
            state_NH.copy_(states_TH[rows])
        ctx.save_for_backward(elements_UE, rows_T, input_weight, weight, gates_TG, candidates_TH, before_TH)
        ctx.sizes, ctx.reverse = sizes, reverse
        return states_TH

    @staticmethod
    @override
    @once_differentiable
    def backward(ctx: Any, gradient_TH: Tensor) -> tuple[Tensor | None, ...]:
        elements_UE, rows_T, input_weight, weight, gates_TG, candidates_TH, before_TH = ctx.saved_tensors
        width, of_products = weight.shape[1], weight.dtype
        by_gates_TG = torch.empty_like(gates_TG)
        by_new_TH = torch.empty_like(before_TH)
        carried_nH = gates_TG.new_zeros(max(ctx.sizes, default=0), width)
        for rows in _steps(ctx.sizes, not ctx.reverse):
            reset_NH, update_NH, new_NH = gates_TG[rows].chunk(3, dim=1)
            by_reset_NH, by_update_NH, by_candidate_NH = by_gates_TG[rows].chunk(3, dim=1)
            carried_NH = carried_nH[: rows.stop - rows.start]
            by_state_NH = carried_NH.add_(gradient_TH[rows])
            torch.sub(before_TH[rows], new_NH, out=by_update_NH)
            by_update_NH.mul_(by_state_NH).mul_(update_NH).mul_(1 - update_NH)
            torch.mul(by_state_NH, 1 - update_NH, out=by_new_TH[rows])
            by_new_TH[rows].mul_(1 - new_NH * new_NH)
            torch.mul(by_new_TH[rows], reset_NH, out=by_candidate_NH)
            torch.mul(by_candidate_NH, candidates_TH[rows], out=by_reset_NH)
            by_reset_NH.mul_(1 - reset_NH)
            carried_NH.mul_(update_NH)
            carried_NH.add_(product(by_gates_TG[rows].to(of_products), weight))
        by_recurrent_TG = by_gates_TG.to(of_products)
        by_state_weight = product(by_recurrent_TG.t(), before_TH.to(of_products)).to(gates_TG.dtype)
        by_state_bias = by_gates_TG.sum(dim=0)
        by_gates_TG[:, 2 * width :] = by_new_TH
        by_inputs_UG = by_gates_TG.new_zeros(len(elements_UE), 3 * width).index_add_(0, rows_T, by_gates_TG)
        by_input_bias = by_inputs_UG.sum(dim=0)
        by_inputs_UG = by_inputs_UG.to(of_products)
        by_input_weight = product(by_inputs_UG.t(), elements_UE).to(gates_TG.dtype)
        by_elements_UE = product(by_inputs_UG, input_weight).to(gates_TG.dtype)
        by_weights = by_input_weight, by_state_weight, by_input_bias, by_state_bias
        return by_elements_UE, None, None, None, None, *by_weights


def _steps(sizes: list[int], reverse: bool) -> list[slice]:
    """Return the rows of each step, the last step first in reverse."""
    steps = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return steps[::-1] if reverse else steps
