"""The result of a loss, and the similarities that every loss reports."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossResult:
    """A loss: the scalar to minimise, in float32, and named scalars that it is made of, detached, for logging."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


@torch.no_grad()
def pair_similarities(sims_BB: Tensor, negative_BB: Tensor) -> dict[str, Tensor]:
    """Mean similarity of the pairs, and of each image's hardest negative caption (of those images that have one)."""
    hardest_B = sims_BB.masked_fill(~negative_BB, -torch.inf).amax(dim=1)
    # A sum over all and not a selection, for whose size the host would wait.
    found_B = negative_BB.any(dim=1)
    return {
        "positive_similarity": sims_BB.diagonal().mean(),
        "hardest_negative_similarity": hardest_B.masked_fill(~found_B, 0.0).sum() / found_B.sum(),
    }
