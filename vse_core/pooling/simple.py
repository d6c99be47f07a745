"""Aggregators without parameters: mean, maximum, mean of the k largest values, first element, last element."""

import torch
from torch import Tensor

from vse_core.pooling.base import Pooling, RankPooling
from vse_core.precision import at_least_float32


class MeanPooling(Pooling):
    """Mean over the valid elements: the aggregator of VSE++ as VSE-infinity re-implements it (section 4.2)."""

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        # Summed in float32: 256 half-precision grid cells would lose digits, or overflow.
        total_BD = at_least_float32(features_BND).masked_fill(~valid_BN1, 0.0).sum(dim=1)
        return total_BD / lengths_B.unsqueeze(-1)


class MaxPooling(Pooling):
    """Maximum of every dimension over the valid elements."""

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        return features_BND.masked_fill(~valid_BN1, -float("inf")).amax(dim=1)


class KMaxPooling(RankPooling):
    """Mean of the k largest values of every dimension (VSE-infinity, section 3.2); of all values in a smaller set.

    The default k, at least 1, is what VSE+2AD tuned by hand for regions (its appendix A.1); VSE-infinity found 20 the
    best for grids (its section 3.1).
    """

    def __init__(self, k: int = 5) -> None:
        super().__init__()
        self.k = k

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """Return the weights (B, size) of the ranks: equal ones for the first k."""
        taken_B1 = lengths_B.clamp(max=self.k).unsqueeze(-1)
        return (torch.arange(size, device=lengths_B.device) < taken_B1) / taken_B1


class ClsPooling(Pooling):
    """The first element: BERT's [CLS], or the first token of a BiGRU (VSE-infinity, section 5.2)."""

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        return features_BND[:, 0]


class LastPooling(Pooling):
    """The last valid element: of a GRU that reads forwards the state that has seen the whole caption (VSE++)."""

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        return features_BND[torch.arange(features_BND.shape[0], device=features_BND.device), lengths_B - 1]
