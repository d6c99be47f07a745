"""A model small enough to train in a test: two GPO towers, and K views by a linear layer each."""

import torch
from torch import Tensor, nn

from vse_core.models import build_model
from vse_core.similarity import unit_length

SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 13,
    "embed_dim": 8,
    "image": {"pooling": {"name": "gpo"}, "mlp": True},
    "text": {"pooling": {"name": "gpo"}, "word_dim": 6},
}

# Every loss, and every form of it that takes another way through the code.
LOSSES = {
    "triplet": {"name": "triplet"},
    "triplet-all": {"name": "triplet", "negatives": "all"},
    "multi_view-avg": {"name": "multi_view", "bound": "avg"},
    "multi_view-joint": {"name": "multi_view"},
    "multi_view-joint-all": {"name": "multi_view", "negatives": "all"},
    "multi_view-journal": {"name": "multi_view", "bound": "journal"},
    "multi_view-journal_soft": {"name": "multi_view", "bound": "journal_soft"},
    "adopt": {"name": "adopt"},
    "adopt-release": {"name": "adopt", "variant": "release"},
    "adopt-paper": {"name": "adopt", "variant": "paper"},
    "adopt-random": {"name": "adopt", "count": "random"},
    "infonce": {"name": "infonce"},
    "sigmoid": {"name": "sigmoid"},
}


class TinyViews(nn.Module):
    """Called with features, their lengths, tokens and their lengths; returns (B, K, 8) and (B, 8)."""

    def __init__(self, views: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.towers = build_model(**SPECIFICATION)
        self.views = nn.ModuleList(nn.Linear(8, 8) for _ in range(views))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        images_B1D, texts_BD = self.towers(*inputs)
        return unit_length(torch.cat([view(images_B1D) for view in self.views], dim=1)), texts_BD


def random_batch(size: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Inputs of the model, padded, and the ids of their images, of which some are equal."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        torch.randn(size, 6, 5, generator=generator),
        torch.randint(1, 7, (size,), generator=generator),
        torch.randint(0, 13, (size, 7), generator=generator),
        torch.randint(1, 8, (size,), generator=generator),
    ]
    return inputs, torch.randint(0, size // 2, (size,), generator=generator)
