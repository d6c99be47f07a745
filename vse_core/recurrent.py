"""GRUs over padded sequences: their states, by :mod:`~vse_core.packed_gru` on CPUs, cuDNN on GPUs, or ONNX's operator.

B sequences, N padded elements, E width of an element, H width of the GRU, R directions (1 or 2).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from vse_core.packed_gru import packed_gru_states
from vse_core.static_shapes import has_static_shapes
from vse_core.streams import beside


def gru_states(gru: nn.GRU, inputs_BNE: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the states (B, N, H) of a GRU of one layer, the mean of both directions' if it has two.

    Whatever the padding holds, they do not depend on it; those beyond a sequence's end mean nothing.
    """
    if has_static_shapes(inputs_BNE):
        is_padding_BN = torch.arange(inputs_BNE.shape[1], device=inputs_BNE.device) >= lengths_B.unsqueeze(1)
        return unpacked_states(gru, inputs_BNE.masked_fill(is_padding_BN.unsqueeze(-1), 0.0), lengths_B)
    packed = pack_padded_sequence(inputs_BNE, lengths_B, batch_first=True, enforce_sorted=False)
    each_once = packed._replace(data=torch.arange(len(packed.data)))
    return _padded(packed._replace(data=packed_gru_states(gru, packed.data, each_once)), inputs_BNE.shape[1])


def word_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], tokens_BN: Tensor, lengths_B: Tensor) -> Tensor:
    """Return ``gru_states`` of word vectors; on a CPU, a word of the batch is projected to the GRU's width once."""
    if has_static_shapes(tokens_BN):
        return unpacked_states(gru, embedding(tokens_BN), lengths_B)
    words_U, places_BN = tokens_BN.unique(return_inverse=True)
    packed = pack_padded_sequence(places_BN, lengths_B, batch_first=True, enforce_sorted=False)
    return _padded(packed._replace(data=packed_gru_states(gru, embedding(words_U), packed)), tokens_BN.shape[1])


def last_state(gru: nn.GRU, inputs_BNE: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the state (B, H) that a GRU of one layer and direction ends in."""
    rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
    return gru_states(gru, inputs_BNE, lengths_B)[rows_B, lengths_B - 1]


def unpacked_states(gru: nn.GRU, inputs_BNE: Tensor, lengths_B: Tensor) -> Tensor:
    """Return :func:`gru_states` without packing, which costs kernels at every step, and the host a wait for lengths.

    Padding behind a sequence, of any finite numbers, does not matter to a direction that reads forwards. The other one
    gets the sequence turned round, in a call of its own.
    """
    if torch.onnx.is_in_onnx_export():
        return _onnx_states(gru, inputs_BNE, lengths_B)
    if not gru.bidirectional:
        return _forward_states(gru, gru.all_weights[0], inputs_BNE)

    def backward_states() -> Tensor:
        """Return the states (B, N, H) of the direction that reads backwards."""
        ordinals_N = torch.arange(1, inputs_BNE.shape[1] + 1, device=inputs_BNE.device)
        turned_BN = (lengths_B.unsqueeze(1) - ordinals_N).clamp(min=0)
        turned_BNH = _forward_states(gru, gru.all_weights[1], _at_places(inputs_BNE, turned_BN))
        return _at_places(turned_BNH, turned_BN)

    backward_BNH = beside(f"backwards, {gru.hidden_size}", inputs_BNE, backward_states)
    states_BNH = _forward_states(gru, gru.all_weights[0], inputs_BNE)
    return (states_BNH + backward_BNH()) / 2


def _forward_states(gru: nn.GRU, weights: list[nn.Parameter], inputs_BNE: Tensor) -> Tensor:
    """The states of one direction, whose weights cuDNN wants one behind the other in memory."""
    together = torch.cat([weight.flatten() for weight in weights]).split([weight.numel() for weight in weights])
    joined = [flat.view_as(weight) for flat, weight in zip(together, weights, strict=True)]
    start_1BH = inputs_BNE.new_zeros(1, len(inputs_BNE), gru.hidden_size)
    return torch.gru(inputs_BNE, start_1BH, joined, True, 1, 0.0, gru.training, False, True)[0]


def _at_places(rows_BNE: Tensor, places_BN: Tensor) -> Tensor:
    """Return the rows (B, N, E) of each sequence in the order of its places (B, N)."""
    return rows_BNE.gather(1, places_BN.unsqueeze(-1).expand(-1, -1, rows_BNE.shape[2]))


def _padded(states: PackedSequence, length: int) -> Tensor:
    return pad_packed_sequence(states, batch_first=True, total_length=length)[0]


def _onnx_states(gru: nn.GRU, inputs_BNE: Tensor, lengths_B: Tensor) -> Tensor:
    """The states (B, N, H) by ONNX's operator, which takes lengths; PyTorch's exporter would unroll the steps."""
    weights, recurrent, biases_in, biases = (
        torch.stack([_onnx_gates(rows) for rows in of_directions])
        for of_directions in zip(*gru.all_weights, strict=True)
    )
    batch, count, _ = inputs_BNE.shape
    states_NRBH = torch.onnx.ops.symbolic(
        "GRU",
        [inputs_BNE.transpose(0, 1), weights, recurrent, torch.cat([biases_in, biases], dim=1), lengths_B.int()],
        {
            "hidden_size": gru.hidden_size,
            "linear_before_reset": 1,
            "direction": "bidirectional" if gru.bidirectional else "forward",
        },
        dtype=inputs_BNE.dtype,
        shape=(count, len(gru.all_weights), batch, gru.hidden_size),
    )
    return states_NRBH.mean(dim=1).transpose(0, 1)


def _onnx_gates(rows: Tensor) -> Tensor:
    """Rows of the gates in ONNX's order, update before reset."""
    reset, update, new = rows.chunk(3)
    return torch.cat([update, reset, new])
