"""K views of one set: several aggregators over the same features, as MV-VSE embeds an image."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths
from vse_core.pooling.sorting import rank_weighted_sum


@runtime_checkable
class RankPooling(Protocol):
    """An aggregator that is a weighted sum of the sorted values, with weights that depend on the length alone."""

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """The weights of the ranks: (B, size)."""


class MultiViewPooling(nn.Module):
    """Pool a set once with each of K aggregators (MV-VSE, section 3.2 and equation (4)).

    Views that weight ranks (``gpo``, ``kmax``) share one sort, so that they cost little more than one of them.
    """

    def __init__(self, views: Sequence[nn.Module]) -> None:
        super().__init__()
        if not views:
            raise ValueError("an image needs at least one view, got none")
        self.views = nn.ModuleList(views)

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, K, D)."""
        check_lengths(features_BND, lengths_B)
        ranked = [view for view in self.views if isinstance(view, RankPooling)]
        if len(ranked) < len(self.views):
            return torch.stack([view(features_BND, lengths_B) for view in self.views], dim=1)
        weights_BKN = torch.stack([view.coefficients(lengths_B, features_BND.shape[1]) for view in ranked], dim=1)
        return rank_weighted_sum(features_BND, lengths_B, weights_BKN).to(features_BND.dtype)
