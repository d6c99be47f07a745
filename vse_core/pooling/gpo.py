"""The Generalized Pooling Operator of VSE-infinity: learned weights for the ranks of a sorted set."""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vse_core.pooling.masks import check_lengths
from vse_core.pooling.rank_gru import bidirectional_states
from vse_core.pooling.sorting import rank_weighted_sum
from vse_core.precision import at_least_float32, full_precision


class GeneralizedPooling(nn.Module):
    """Learn how much each rank of the sorted set counts (VSE-infinity, section 3 and equations (2) to (5)).

    The coefficients come from a bidirectional GRU, ``hidden_dim`` (d_2) wide, over sinusoidal codes of the ranks,
    ``position_dim`` (d_1) wide, followed by a linear layer and a softmax; they depend on the length of the set alone,
    so they are computed once per distinct length. Mean, max and k-max pooling are special cases.

    Differs from the paper: ranks are coded from 0 and the softmax has a temperature of 0.1, both as in the released
    code; the paper states neither.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        if position_dim % 2:
            raise ValueError(f"position_dim must be even (sine and cosine pairs), got {position_dim}")
        self.position_dim = position_dim
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        weights_BN = self.coefficients(lengths_B, features_BND.shape[1])
        return rank_weighted_sum(features_BND, lengths_B, weights_BN.unsqueeze(1)).squeeze(1).to(features_BND.dtype)

    def coefficients(self, lengths_B: Tensor, size: int | None = None) -> Tensor:
        """The weights (B, size) of the ranks for sets of the given lengths: each row sums to 1, zeros beyond a length.

        ``size`` is the longest length where it is not given.
        """
        distinct_U, row_of_B = torch.unique(lengths_B, return_inverse=True)
        longest = int(distinct_U[-1])
        codes_NP = rank_codes(longest, self.position_dim).to(self.linear.weight)
        # The temperature multiplies every error of a score by ten: half precision would not do.
        with full_precision(codes_NP):
            states = bidirectional_states if codes_NP.device.type == "cpu" else _packed_states
            states_UNH = states(self.gru, codes_NP, distinct_U)
            scores_UN = nn.functional.linear(states_UNH, self.linear.weight.to(states_UNH)).squeeze(-1)
        padded_UN = torch.arange(longest, device=lengths_B.device) >= distinct_U.unsqueeze(-1)
        scores_UN = at_least_float32(scores_UN) / self.temperature
        weights_UN = scores_UN.masked_fill(padded_UN, -float("inf")).softmax(dim=-1)
        weights_BN = nn.functional.pad(weights_UN, (0, (size or longest) - longest))[row_of_B]
        return weights_BN.to(at_least_float32(self.linear.weight).dtype)


def _packed_states(gru: nn.GRU, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
    """As :func:`bidirectional_states`, by PyTorch's own GRU in the precision of its weights: for GPUs."""
    codes_UNP = codes_NP.expand(len(sizes_U), -1, -1)
    packed = pack_padded_sequence(codes_UNP, sizes_U.cpu(), batch_first=True, enforce_sorted=False)
    hidden_UNH = pad_packed_sequence(gru(packed)[0], batch_first=True)[0]
    forward_UNH, backward_UNH = hidden_UNH.chunk(2, dim=-1)
    return (forward_UNH + backward_UNH) / 2


def rank_codes(count: int, dim: int) -> Tensor:
    """Sinusoidal codes (count, dim) of the ranks 0, 1, ...: sines at even places, cosines at odd ones (eq. (3))."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles = torch.arange(count).unsqueeze(-1) * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
