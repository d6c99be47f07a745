"""ADPOOL of VSE+2AD: a learned mixture of pooling over ranks and pooling within every dimension."""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.pooling.base import Pooling
from vse_core.pooling.masks import softmax_weighted_sum
from vse_core.pooling.sorting import sort_sets
from vse_core.precision import at_least_float32

Variant = Literal["corrected", "release", "paper"]


class AdaptivePooling(Pooling):
    """Sort the set, pool it at token level and at embedding level, let the result choose the mixture (VSE+2AD, 3.2).

    At token level, weights of the sorted values come from the values themselves (equation (3)); at embedding level
    every dimension takes a softmax of its own values, a soft maximum (equation (4)); a last linear layer balances the
    two (equation (5)).

    Differs from the paper, ``variant="paper"``: its token weights are one scalar per rank, and neither linear layer has
    a bias. ``release``, the released code, gives every rank and dimension a weight, from a linear layer of full width
    with a bias and a ReLU; it also lets the zero rows of padding take part in the token softmax. ``corrected`` is the
    release with padding left out; their weights are exchangeable.

    The ablations fix the balance: ``token_share`` is the weight of the token level, 1 leaves the embedding level out
    and 0 the token level (table 3), and ``"random"`` draws it once, when the aggregator is built (appendix C, table
    C-2).
    """

    token_share: Tensor

    def __init__(self, dim: int, variant: Variant = "corrected", token_share: float | str = "learned") -> None:
        super().__init__()
        self.variant = variant
        # Layers that have no effect would be parameters without gradients.
        self.linear = None if token_share == 0 else _token_layer(dim, variant)
        self.reads_padding = variant == "release" and self.linear is not None
        self.balance = nn.Linear(dim, 1, bias=variant != "paper") if token_share == "learned" else None
        if self.balance is None:
            if token_share != "random" and (isinstance(token_share, str) or not 0 <= token_share <= 1):
                raise ValueError(f"token_share must be learned, random, or a number from 0 to 1; got {token_share!r}")
            share = torch.rand(()) if token_share == "random" else torch.tensor(float(token_share))
            self.register_buffer("token_share", share)

    def _pool(self, features_BND: Tensor, lengths_B: Tensor, valid_BN1: Tensor) -> Tensor:
        ranked_BND = sort_sets(features_BND, lengths_B)
        embedding_BD = softmax_weighted_sum(ranked_BND, ranked_BND, valid_BN1)
        if self.linear is None:
            return embedding_BD
        logits = self.linear(ranked_BND)
        if self.variant != "paper":
            logits = torch.relu(logits)
        weighted_BN1 = torch.ones_like(valid_BN1) if self.variant == "release" else valid_BN1
        token_BD = softmax_weighted_sum(logits, ranked_BND, weighted_BN1)
        if self.balance is None:
            return torch.lerp(embedding_BD, token_BD, self.token_share.to(token_BD))
        levels_B2D = torch.stack((token_BD, embedding_BD), dim=1)
        shares_B21 = at_least_float32(self.balance(levels_B2D)).softmax(dim=1)
        return (shares_B21 * levels_B2D).sum(dim=1)


def _token_layer(dim: int, variant: Variant) -> nn.Linear:
    if variant == "paper":
        return nn.Linear(dim, 1, bias=False)
    linear = nn.Linear(dim, dim)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
