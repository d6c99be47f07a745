"""Aggregators: the check of their input, those whose weights depend on ranks alone, and several over one set."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
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


class RankPooling(nn.Module, ABC):
    """A weighted sum of the sorted values, with weights that depend on the length alone; the sort masks padding."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets as :class:`Pooling` does."""
        check_lengths(features_BND, lengths_B)
        weights_BN = self.coefficients(lengths_B, features_BND.shape[1])
        return rank_weighted_sum(features_BND, lengths_B, weights_BN.unsqueeze(1)).squeeze(1).to(features_BND.dtype)

    @abstractmethod
    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """Return the weights (B, size) of the ranks: each row sums to 1, zeros beyond a length."""


class MultiViewPooling(Pooling):
    """Pool a set once with each of K aggregators (MV-VSE, section 3.2 and equation (4)): (B, K, D).

    Views that weight ranks (``gpo``, ``kmax``) share one sort, so that they cost little more than one of them.
    """

    def __init__(self, views: Sequence[nn.Module]) -> None:
        super().__init__()
        self.views = nn.ModuleList(views)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ranked = [view for view in self.views if isinstance(view, RankPooling)]
        if len(ranked) < len(self.views):
            return torch.stack([view(features_BND, lengths_B) for view in self.views], dim=1)
        weights_BKN = torch.stack([view.coefficients(lengths_B, features_BND.shape[1]) for view in ranked], dim=1)
        return rank_weighted_sum(features_BND, lengths_B, weights_BKN)
