"""K views of one set: several aggregators over the same features, as MV-VSE embeds an image."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vse_core.pooling.base import Pooling, RankPooling
from vse_core.pooling.sorting import rank_weighted_sum


class MultiViewPooling(Pooling):
    """Pool a set once with each of K aggregators (MV-VSE, section 3.2 and equation (4)): (B, K, D).

    Views that weight ranks (``gpo``, ``kmax``) share one sort, so that they cost little more than one of them.

    Args:
        views: the K aggregators.

    Raises:
        ValueError: there is no view.
    """

    def __init__(self, views: Sequence[nn.Module]) -> None:
        super().__init__()
        if not views:
            raise ValueError("an image needs at least one view, got none")
        self.views = nn.ModuleList(views)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ranked = [view for view in self.views if isinstance(view, RankPooling)]
        if len(ranked) < len(self.views):
            return torch.stack([view(features_BND, lengths_B) for view in self.views], dim=1)
        weights_BKN = torch.stack([view.coefficients(lengths_B, features_BND.shape[1]) for view in ranked], dim=1)
        return rank_weighted_sum(features_BND, lengths_B, weights_BKN)
