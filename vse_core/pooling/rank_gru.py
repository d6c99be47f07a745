"""The small bidirectional GRU of GPO on a CPU, where the overhead of PyTorch's operations is most of its time.

U distinct set sizes, N ranks, P width of a rank's code, H width of the GRU, G = 3 H its gates (reset, update, new, in
PyTorch's order). The leading axis of 2 is the direction.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def bidirectional_states(gru: nn.GRU, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
    """The mean of both directions' states of a GRU of one layer that reads the first n codes, for every size n.

    Gives what ``torch.nn.GRU`` gives for packed copies of the codes, several times as fast: both directions and all
    sizes take their steps together, in NumPy, with a backward of their own. In float64, which costs a network of this
    size little: what is lost in float32 adds up over the ranks. The result is (U, N, H), differentiable in the codes
    and the GRU's parameters; entries at or beyond a size mean nothing.
    """
    ranks_N = torch.arange(len(codes_NP))
    backwards_UN = (sizes_U.unsqueeze(-1) - 1 - ranks_N).clamp(min=0)
    codes_2UNP = torch.stack((codes_NP.expand(len(sizes_U), -1, -1), codes_NP[backwards_UN]))
    parameters = (
        torch.stack([getattr(gru, f"{name}_l0"), getattr(gru, f"{name}_l0_reverse")])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    forward_UNH, reversed_UNH = _TwoGrus.apply(*map(Tensor.double, (codes_2UNP, *parameters)))
    backward_UNH = reversed_UNH.gather(1, backwards_UN.unsqueeze(-1).expand_as(reversed_UNH))
    mean_UNH: Tensor = (forward_UNH + backward_UNH) / 2
    return mean_UNH


class _TwoGrus(torch.autograd.Function):
    """Two GRUs with weights of their own, each over U sequences, from a state of zeros: the states (2, U, N, H)."""

    @staticmethod
    def forward(ctx: Any, codes_2UNP: Tensor, *parameters: Tensor) -> Tensor:
        codes, weight_ih, weight_hh, bias_ih, bias_hh = (
            tensor.detach().numpy() for tensor in (codes_2UNP, *parameters)
        )
        width = weight_hh.shape[2]
        from_codes_N2UG = np.moveaxis(codes @ weight_ih.swapaxes(1, 2)[:, None] + bias_ih[:, None, None], 2, 0)
        recurrent = weight_hh.swapaxes(1, 2)
        # States from the one before the first rank on, and per rank the gates and the part of the state in "new".
        states = np.zeros((from_codes_N2UG.shape[0] + 1, *from_codes_N2UG.shape[1:3], width), codes.dtype)
        gates = np.empty((*from_codes_N2UG.shape[:3], 4, width), codes.dtype)
        for rank, from_code in enumerate(from_codes_N2UG):
            from_state = states[rank] @ recurrent + bias_hh[:, None]
            # The sigmoid, in a form that does not overflow.
            opened = 0.5 + 0.5 * np.tanh(0.5 * (from_code[..., : 2 * width] + from_state[..., : 2 * width]))
            reset, update, candidate = opened[..., :width], opened[..., width:], from_state[..., 2 * width :]
            new = np.tanh(from_code[..., 2 * width :] + reset * candidate)
            states[rank + 1] = new + update * (states[rank] - new)
            for place, gate in enumerate((reset, update, new, candidate)):
                gates[rank, :, :, place] = gate
        ctx.codes, ctx.weight_ih, ctx.weight_hh, ctx.states, ctx.gates = codes, weight_ih, weight_hh, states, gates
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(states[1:], 0, 2)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        grad_N2UH = np.moveaxis(grads[0].numpy(), 2, 0)
        reset, update, new, candidate = np.moveaxis(ctx.gates, 3, 0)
        # Everything that does not depend on the gradient of the next state, for all ranks at once.
        new_slope = (1 - update) * (1 - new * new)
        update_slope = (ctx.states[:-1] - new) * update * (1 - update)
        reset_slope = candidate * reset * (1 - reset)
        from_state_N2UG = np.empty((*reset.shape[:3], 3 * reset.shape[3]), reset.dtype)
        grad_new = np.empty_like(reset)
        grad_state = np.zeros_like(reset[0])
        width = reset.shape[3]
        for rank in range(len(reset) - 1, -1, -1):
            grad_state = grad_state + grad_N2UH[rank]
            grad_new[rank] = grad_state * new_slope[rank]
            from_state_N2UG[rank, ..., :width] = grad_new[rank] * reset_slope[rank]
            from_state_N2UG[rank, ..., width : 2 * width] = grad_state * update_slope[rank]
            from_state_N2UG[rank, ..., 2 * width :] = grad_new[rank] * reset[rank]
            grad_state = grad_state * update[rank] + from_state_N2UG[rank] @ ctx.weight_hh
        from_code_N2UG = from_state_N2UG.copy()
        from_code_N2UG[..., 2 * width :] = grad_new
        codes_N2UP = np.moveaxis(ctx.codes, 2, 0)
        gradients = (
            np.moveaxis(from_code_N2UG, 0, 2) @ ctx.weight_ih[:, None],
            _per_direction(from_code_N2UG, codes_N2UP),
            _per_direction(from_state_N2UG, ctx.states[:-1]),
            from_code_N2UG.sum(axis=(0, 2)),
            from_state_N2UG.sum(axis=(0, 2)),
        )
        return tuple(map(torch.from_numpy, gradients))


def _per_direction(left_N2UG: np.ndarray, right_N2UP: np.ndarray) -> np.ndarray:
    """Sum of outer products over ranks and sizes: (2, G, P)."""
    left, right = (np.moveaxis(array, 1, 0).reshape(2, -1, array.shape[3]) for array in (left_N2UG, right_N2UP))
    products_2GP: np.ndarray = left.swapaxes(1, 2) @ right
    return products_2GP
