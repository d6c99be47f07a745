"""The Generalized Pooling Operator of VSE-infinity, learned weights for the ranks of a sorted set, and its ablations.

The ablations of the supplementary material (tables 3, 7, 8) have another generator of the weights. B sets, U distinct
sizes, N ranks, P width of a rank's code, H width of the generator, D dimensions.
"""

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from vse_core.pooling.base import Pooling, RankPooling
from vse_core.pooling.masks import softmax_weighted_sum
from vse_core.pooling.sorting import sort_sets
from vse_core.precision import at_least_float32, full_precision
from vse_core.recurrent import gru_states, unpacked_states
from vse_core.static_shapes import has_static_shapes

_HEADS = 4
# Ranks whose codes are kept; larger sets are rare.
HELD = 1024


class LengthPooling(RankPooling):
    """Weights of ranks by a softmax, at a temperature, of scores that depend on the length of the set alone."""

    linear: nn.Linear

    def __init__(self, position_dim: int, temperature: float) -> None:
        super().__init__()
        self.codes = RankCodes(position_dim)
        self.temperature = temperature

    @abstractmethod
    def _states(self, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
        """Return states (U, N, H) of ranks for sets of U sizes, of which ``linear`` makes the scores."""

    def coefficients(self, lengths_B: Tensor, size: int | None = None) -> Tensor:
        """Return the weights (B, size) of the ranks; ``size`` is the longest length by default."""
        longest = size if size is not None and has_static_shapes(lengths_B) else int(lengths_B.max())
        ordinals_N = torch.arange(1, longest + 1, device=lengths_B.device)
        sizes_U, row_of_B = distinct_lengths(lengths_B, ordinals_N)
        codes_NP = self.codes(longest).to(self.linear.weight)
        # The temperature multiplies every error of a score by ten: half precision would not do.
        with full_precision(lengths_B):
            scores_UN = at_least_float32(self.linear(self._states(codes_NP, sizes_U)).squeeze(-1)) / self.temperature
        padded_UN = ordinals_N > sizes_U.unsqueeze(-1)
        weights_UN = scores_UN.masked_fill(padded_UN, -float("inf")).softmax(dim=-1)
        if size is not None and size > longest:
            weights_UN = nn.functional.pad(weights_UN, (0, size - longest))
        return nn.functional.embedding(row_of_B, weights_UN)  # whose gradient takes fewer kernels than an index's


class GeneralizedPooling(LengthPooling):
    """Learn how much each rank of the sorted set counts (VSE-infinity, section 3 and equations (2) to (5)).

    The coefficients come from a bidirectional GRU, ``hidden_dim`` (d_2) wide, over sinusoidal codes of the ranks,
    ``position_dim`` (d_1) wide, an even number, followed by a linear layer and a softmax. They are computed once per
    distinct length. Mean, max and k-max pooling are special cases.

    Differs from the paper: ranks are coded from 0 and the softmax has a temperature of 0.1, both as in the released
    code; the paper states neither.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__(position_dim, temperature)
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def _states(self, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
        return rank_states(self.gru, codes_NP, sizes_U)


def distinct_lengths(lengths_B: Tensor, ordinals_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct lengths (U,), ascending, and the row (B,) of each set's own among them.

    With static shapes they are all that there may be, from 1 to N, the ordinals.
    """
    if has_static_shapes(lengths_B):
        return ordinals_N, lengths_B - 1
    sizes_U, row_of_B = torch.unique(lengths_B, return_inverse=True)
    return sizes_U, row_of_B


def rank_states(gru: nn.GRU, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
    """Return the mean states (U, N, H) of a bidirectional GRU that reads the first n rank codes, for every size n.

    On a CPU, where the steps of so small a GRU cost more than its products, both directions take them together, as one
    GRU of twice the width. States at or beyond a size mean nothing.
    """
    codes_UNP = codes_NP.expand(sizes_U.shape[0], -1, -1)  # `len` would fix the number in an exported graph
    if has_static_shapes(codes_NP):
        return unpacked_states(gru, codes_UNP, sizes_U)
    backwards_UN = (sizes_U.unsqueeze(-1) - 1 - torch.arange(len(codes_NP))).clamp(min=0)
    inputs_UN2P = torch.cat((codes_UNP, codes_NP[backwards_UN]), dim=-1)
    weights = [_of_both_directions(*pair) for pair in zip(*gru.all_weights, strict=True)]
    start_1UH = inputs_UN2P.new_zeros(1, len(sizes_U), 2 * gru.hidden_size)
    states_UNH: Tensor = torch.gru(inputs_UN2P, start_1UH, weights, True, 1, 0.0, gru.training, False, True)[0]
    forward_UNH, reversed_UNH = states_UNH.chunk(2, dim=-1)
    return (forward_UNH + reversed_UNH.gather(1, backwards_UN.unsqueeze(-1).expand_as(reversed_UNH))) / 2


def _of_both_directions(forward: Tensor, backward: Tensor) -> Tensor:
    """Join a parameter of both directions, gate by gate, so that neither direction sees the other."""
    gates = zip(forward.chunk(3), backward.chunk(3), strict=True)
    return torch.cat([torch.block_diag(*pair) if pair[0].dim() == 2 else torch.cat(pair) for pair in gates])


class RankCodes(nn.Module):
    """Sinusoidal codes (count, dim) of the ranks 0, 1, ...: sines at even places, cosines at odd ones (eq. (3)).

    Those of the first :data:`HELD` ranks are kept on the device; they are no part of a saved model.
    """

    held: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"position_dim must be even (sine and cosine pairs), got {dim}")
        self.dim = dim
        self.register_buffer("held", rank_codes(HELD, dim), persistent=False)

    def forward(self, count: int) -> Tensor:
        """Return the codes of the first ranks."""
        if count > HELD:
            return rank_codes(count, self.dim).to(self.held.device)
        return self.held[:count]


def rank_codes(count: int, dim: int) -> Tensor:
    """Compute :class:`RankCodes`, on the host."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles = torch.arange(count).unsqueeze(-1) * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class TransformerGenerator(LengthPooling):
    """GPO whose rank codes are read by a Transformer's encoder layer instead of a GRU.

    One layer of four heads and of the codes' width, its inner layer ``hidden_dim`` wide, without dropout: our choice.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__(position_dim, temperature)
        if position_dim % _HEADS:
            raise ValueError(f"position_dim must be a multiple of {_HEADS}, the number of heads; got {position_dim}")
        self.layer = nn.TransformerEncoderLayer(position_dim, _HEADS, hidden_dim, dropout=0.0, batch_first=True)
        self.linear = nn.Linear(position_dim, 1, bias=False)

    def _states(self, codes_NP: Tensor, sizes_U: Tensor) -> Tensor:
        padded_UN = torch.arange(codes_NP.shape[0], device=sizes_U.device) >= sizes_U.unsqueeze(-1)
        states_UNP: Tensor = self.layer(codes_NP.expand(sizes_U.shape[0], -1, -1), src_key_padding_mask=padded_UN)
        return states_UNP


class DimensionGenerator(Pooling):
    """GPO with weights of their own for every dimension: the last linear layer has D outputs instead of one."""

    def __init__(self, dim: int, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.codes = RankCodes(position_dim)
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, dim, bias=False)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ordinals_N = torch.arange(1, features_BND.shape[1] + 1, device=features_BND.device)
        sizes_U, row_of_B = distinct_lengths(lengths_B, ordinals_N)
        codes_NP = self.codes(features_BND.shape[1]).to(self.linear.weight)
        with full_precision(features_BND):
            scores_UND = self.linear(rank_states(self.gru, codes_NP, sizes_U)) / self.temperature
        ranked_BND = sort_sets(features_BND, lengths_B)
        return softmax_weighted_sum(scores_UND[row_of_B], ranked_BND, valid_BN1)


class FeatureGenerator(Pooling):
    """GPO whose GRU reads a rank's code and sorted values, concatenated: the weights depend on the set itself."""

    def __init__(self, dim: int, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.codes = RankCodes(position_dim)
        self.temperature = temperature
        self.gru = nn.GRU(position_dim + dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ranked_BND = sort_sets(features_BND, lengths_B)
        codes_NP = self.codes(ranked_BND.shape[1]).to(ranked_BND)
        inputs_BNP = torch.cat((codes_NP.expand(ranked_BND.shape[0], -1, -1), ranked_BND), dim=-1)
        with full_precision(features_BND):
            scores_BN1 = self.linear(gru_states(self.gru, inputs_BNP, lengths_B)) / self.temperature
        return softmax_weighted_sum(scores_BN1, ranked_BND, valid_BN1)
