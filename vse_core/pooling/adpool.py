"""ADPOOL of VSE+2AD: a learned mixture of pooling over ranks and pooling within every dimension."""

import torch
from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths, softmax_weighted_sum, valid_mask
from vse_core.pooling.sorting import sort_sets
from vse_core.precision import at_least_float32

VARIANTS = ("corrected", "release", "paper")


class AdaptivePooling(nn.Module):
    """Sort the set, pool it at token level and at embedding level, let the result choose the mixture (VSE+2AD, 3.2).

    At token level, weights of the sorted values come from the values themselves (equation (3)); at embedding level
    every dimension takes a softmax of its own values, a soft maximum (equation (4)); a last linear layer balances the
    two (equation (5)).

    Differs from the paper: its token weights are one scalar per rank, and neither linear layer has a bias; that is
    ``variant="paper"``. The released code gives every rank and dimension a weight of its own, from a linear layer of
    full width with a bias and a ReLU; that is ``variant="release"``. It also lets the zero rows of padding take part
    in the token softmax, so that an embedding depends on what else is in its batch. ``variant="corrected"``, the
    default, is the release with padding left out, and equal to it where there is none; their weights are exchangeable.
    Any other variant is a ValueError.
    """

    def __init__(self, dim: int, variant: str = "corrected") -> None:
        super().__init__()
        if variant not in VARIANTS:
            raise ValueError(f"unknown variant {variant!r} of adpool; known: {', '.join(VARIANTS)}")
        self.variant = variant
        if variant == "paper":
            self.linear = nn.Linear(dim, 1, bias=False)
            self.balance = nn.Linear(dim, 1, bias=False)
        else:
            self.linear = nn.Linear(dim, dim)
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
            self.balance = nn.Linear(dim, 1)

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of lengths (B,) into (B, D)."""
        check_lengths(features_BND, lengths_B)
        valid_BN1 = valid_mask(features_BND, lengths_B).unsqueeze(-1)
        ranked_BND = sort_sets(features_BND, lengths_B)
        logits = self.linear(ranked_BND)
        if self.variant != "paper":
            logits = torch.relu(logits)
        weighted_BN1 = torch.ones_like(valid_BN1) if self.variant == "release" else valid_BN1
        token_BD = softmax_weighted_sum(logits, ranked_BND, weighted_BN1)
        embedding_BD = softmax_weighted_sum(ranked_BND, ranked_BND, valid_BN1)
        levels_B2D = torch.stack((token_BD, embedding_BD), dim=1)
        shares_B21 = at_least_float32(self.balance(levels_B2D)).softmax(dim=1)
        return (shares_B21 * levels_B2D).sum(dim=1).to(features_BND.dtype)
