"""Embeddings of many images or captions, batch by batch, on the CPU."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vse_core.models.build import Model
from vse_core.models.unified import UnifiedModel
from vse_core.outputs import join_rows


@torch.inference_mode()
def embed_images(model: Model, batches: Iterable[tuple[Tensor, Tensor]]) -> Any:
    """Encode batches of the image encoder's two inputs into (images, K, D) or levels; the model must be evaluating."""
    device = next(model.parameters()).device
    parts: list[Any] = [
        model.encode_images(images.to(device), lengths_or_mask.to(device)).to("cpu")
        for images, lengths_or_mask in batches
    ]
    return join_rows(parts)


@torch.inference_mode()
def embed_texts(model: Model, batches: Iterable[tuple[Any, ...]]) -> Any:
    """Encode batches of what ``encode_texts`` takes into (captions, D) or levels; the model must be evaluating."""
    device = next(model.parameters()).device
    parts: list[Any] = [model.encode_texts(*(part.to(device) for part in batch)).to("cpu") for batch in batches]
    return join_rows(parts)


@torch.inference_mode()
def embed_halves(model: UnifiedModel, batches: Iterable[tuple[Any, ...]]) -> tuple[Tensor, Tensor, Tensor]:
    """Encode batches as `embed_texts` does, but leave sentences (C, D) and components (C, D) apart.

    The third is which captions have components (C,); see :meth:`~vse_core.models.UnifiedModel.encode_halves`.
    """
    device = next(model.parameters()).device
    parts = [model.encode_halves(*(part.to(device) for part in batch)) for batch in batches]
    sentences_CD, composed_CD, has_C = (
        torch.cat([part.cpu() for part in column]) for column in zip(*parts, strict=True)
    )
    return sentences_CD, composed_CD, has_C
