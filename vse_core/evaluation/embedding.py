"""Embeddings of many images or captions, batch by batch, on the CPU."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vse_core.models.two_tower import TwoTower


@torch.inference_mode()
def embed_images(model: TwoTower, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Encode batches of the image encoder's two inputs into (images, K, D); the model must be in evaluation mode."""
    device = next(model.parameters()).device
    return torch.cat(
        [model.encode_images(images.to(device), elements.to(device)).cpu() for images, elements in batches]
    )


@torch.inference_mode()
def embed_texts(model: TwoTower, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Encode batches of ``(tokens_CL, lengths_C)`` into (captions, D); the model must be in evaluation mode."""
    device = next(model.parameters()).device
    return torch.cat([model.encode_texts(tokens.to(device), lengths.to(device)).cpu() for tokens, lengths in batches])
