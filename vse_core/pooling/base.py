"""Aggregators: the check of their input, and those whose weights depend on ranks alone."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths, valid_mask
from vse_core.pooling.sorting import rank_weighted_sum


class Pooling(nn.Module, ABC):
    """An aggregator of padded sets; the result has the type of the features."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        valid_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        return self._pool(features_BND, lengths_B, valid_BN1).to(features_BND.dtype)

    @abstractmethod
    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        """Pool checked sets, whose mask of real elements is ``valid_BN1``."""


class RankPooling(Pooling):
    """A weighted sum of the sorted values, with weights that depend on the length alone."""

    @abstractmethod
    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """Return the weights (B, size) of the ranks: each row sums to 1, zeros beyond a length."""

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        weights_BN = self.coefficients(lengths_B, features_BND.shape[1])
        return rank_weighted_sum(features_BND, lengths_B, weights_BN.unsqueeze(1)).squeeze(1)
