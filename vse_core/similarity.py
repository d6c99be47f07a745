"""Unit length, and similarities of images with K views and texts."""

import torch
from torch import Tensor

from vse_core.precision import at_least_float32, full_precision


def unit_length(vectors: Tensor) -> Tensor:
    """Scale the last axis to length 1 in float32: ``x / (||x|| + 1e-8)``, as the released VSE-infinity code does.

    A vector of zeros stays one, and its gradient is finite: some cells of real feature maps are nothing but zeros.
    """
    vectors = at_least_float32(vectors)
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / (lengths + (lengths == 0) + 1e-8)


def view_similarities(images_BKD: Tensor, texts_CD: Tensor) -> Tensor:
    """Return inner products (B, K, C) of all views and texts, in float32 (MV-VSE, equation (5))."""
    # Near-ties between negatives need all the digits.
    with full_precision(images_BKD):
        return at_least_float32(images_BKD) @ at_least_float32(texts_CD).T


def best_view(sims_BKC: Tensor) -> Tensor:
    """Return the similarity (B, C) of images and texts: the maximum over the image's K views (MV-VSE, equation (6))."""
    return sims_BKC.squeeze(1) if sims_BKC.shape[1] == 1 else sims_BKC.amax(dim=1)


def similarity_matrix(images_BKD: Tensor, texts_CD: Tensor) -> Tensor:
    """Return the similarities (B, C) of images and texts in float32, the maximum over an image's K views."""
    return best_view(view_similarities(images_BKD, texts_CD))
