"""Aggregators without parameters: mean and maximum over the valid elements of a set."""

from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths, valid_mask
from vse_core.precision import at_least_float32


class MeanPooling(nn.Module):
    """Mean over the valid elements: the aggregator of VSE++ as VSE-infinity re-implements it (section 4.2)."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool ``features_BND`` (B, N, D) with ``lengths_B`` (B,) into (B, D).

        Raises:
            ValueError: a length is 0 or exceeds N.
        """
        check_lengths(features_BND, lengths_B)
        mask_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        # Summed in float32: 256 half-precision grid cells would lose digits, or overflow.
        total_BD = at_least_float32(features_BND).masked_fill(~mask_BN1, 0.0).sum(dim=1)
        return (total_BD / lengths_B.unsqueeze(-1)).to(features_BND.dtype)


class MaxPooling(nn.Module):
    """Maximum of every dimension over the valid elements."""

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool ``features_BND`` (B, N, D) with ``lengths_B`` (B,) into (B, D).

        Raises:
            ValueError: a length is 0 or exceeds N.
        """
        check_lengths(features_BND, lengths_B)
        mask_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        return features_BND.masked_fill(~mask_BN1, -float("inf")).amax(dim=1)
