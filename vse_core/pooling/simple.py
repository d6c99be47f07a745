"""Aggregators without parameters: mean, maximum, mean of the k largest values, first element, last element."""

import torch
from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths, valid_mask
from vse_core.pooling.sorting import rank_weighted_sum
from vse_core.precision import at_least_float32


class MeanPooling(nn.Module):
    """Mean over the valid elements: the aggregator of VSE++ as VSE-infinity re-implements it (section 4.2)."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        mask_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        # Summed in float32: 256 half-precision grid cells would lose digits, or overflow.
        total_BD = at_least_float32(features_BND).masked_fill(~mask_BN1, 0.0).sum(dim=1)
        return (total_BD / lengths_B.unsqueeze(-1)).to(features_BND.dtype)


class MaxPooling(nn.Module):
    """Maximum of every dimension over the valid elements."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        mask_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        return features_BND.masked_fill(~mask_BN1, -float("inf")).amax(dim=1)


class KMaxPooling(nn.Module):
    """Mean of the k largest values of every dimension (VSE-infinity, section 3.2); of all values in a smaller set.

    The default k, at least 1, is what VSE+2AD tuned by hand for regions (its appendix A.1); VSE-infinity found 20 the
    best for grids (its section 3.1).
    """

    def __init__(self, k: int = 5) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k-max pooling takes at least 1 value, got k={k}")
        self.k = k

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        weights_BN = self.coefficients(lengths_B, features_BND.shape[1])
        return rank_weighted_sum(features_BND, lengths_B, weights_BN.unsqueeze(1)).squeeze(1).to(features_BND.dtype)

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        """The weights of the ranks for sets of the given lengths: (B, size), each row sums to 1."""
        taken_B1 = lengths_B.clamp(max=self.k).unsqueeze(-1)
        return (torch.arange(size, device=lengths_B.device) < taken_B1) / taken_B1


class ClsPooling(nn.Module):
    """The first element: BERT's [CLS], or the first token of a BiGRU (VSE-infinity, section 5.2)."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        return features_BND[:, 0]


class LastPooling(nn.Module):
    """The last valid element: of a GRU that reads forwards the state that has seen the whole caption (VSE++)."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        return features_BND[torch.arange(features_BND.shape[0], device=features_BND.device), lengths_B - 1]
