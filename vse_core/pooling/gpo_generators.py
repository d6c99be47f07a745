"""GPO with other generators of its weights: the ablations of VSE-infinity's supplementary material (tables 3, 7, 8).

Each differs from GPO in one thing. B sets, U distinct sizes, N ranks, P width of a rank's code, H width of the
generator, D dimensions.
"""

import torch
from torch import Tensor, nn

from vse_core.pooling.base import Pooling, RankPooling
from vse_core.pooling.gpo import distinct_lengths, length_weights, rank_codes, rank_states
from vse_core.pooling.masks import softmax_weighted_sum
from vse_core.pooling.sorting import sort_sets
from vse_core.precision import full_precision
from vse_core.recurrent import gru_states

_HEADS = 4


class TransformerGenerator(RankPooling):
    """GPO whose rank codes are read by a Transformer's encoder layer instead of a GRU.

    One layer of four heads and of the codes' width, its inner layer ``hidden_dim`` wide, without dropout: our choice.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        if position_dim % _HEADS:
            raise ValueError(f"position_dim must be a multiple of {_HEADS}, the number of heads; got {position_dim}")
        self.temperature = temperature
        self.layer = nn.TransformerEncoderLayer(position_dim, _HEADS, hidden_dim, dropout=0.0, batch_first=True)
        self.linear = nn.Linear(position_dim, 1, bias=False)

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """Return the weights (B, size) of the ranks."""
        return length_weights(self._scores, lengths_B, size, self.temperature)

    def _scores(self, sizes_U: Tensor, longest: int) -> Tensor:
        codes_NP = rank_codes(longest, self.linear.in_features).to(self.linear.weight)
        padded_UN = torch.arange(codes_NP.shape[0], device=sizes_U.device) >= sizes_U.unsqueeze(-1)
        states_UNP = self.layer(codes_NP.expand(sizes_U.shape[0], -1, -1), src_key_padding_mask=padded_UN)
        scores_UN: Tensor = self.linear(states_UNP).squeeze(-1)
        return scores_UN


class DimensionGenerator(Pooling):
    """GPO with weights of their own for every dimension: the last linear layer has D outputs instead of one."""

    def __init__(self, dim: int, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, dim, bias=False)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        sizes_U, row_of_B = distinct_lengths(lengths_B)
        codes_NP = rank_codes(features_BND.shape[1], self.gru.input_size).to(self.linear.weight)
        with full_precision(features_BND):
            scores_UND = self.linear(rank_states(self.gru, codes_NP, sizes_U)) / self.temperature
        ranked_BND = sort_sets(features_BND, lengths_B)
        return softmax_weighted_sum(scores_UND[row_of_B], ranked_BND, valid_BN1)


class FeatureGenerator(Pooling):
    """GPO whose GRU reads a rank's code and sorted values, concatenated: the weights depend on the set itself."""

    def __init__(self, dim: int, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.position_dim = position_dim
        self.temperature = temperature
        self.gru = nn.GRU(position_dim + dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ranked_BND = sort_sets(features_BND, lengths_B)
        codes_NP = rank_codes(ranked_BND.shape[1], self.position_dim).to(ranked_BND)
        inputs_BNP = torch.cat((codes_NP.expand(ranked_BND.shape[0], -1, -1), ranked_BND), dim=-1)
        with full_precision(features_BND):
            scores_BN1 = self.linear(gru_states(self.gru, inputs_BNP, lengths_B)) / self.temperature
        return softmax_weighted_sum(scores_BN1, ranked_BND, valid_BN1)
