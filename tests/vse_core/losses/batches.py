"""Batches of embeddings for the tests of losses."""

import torch
from hypothesis import strategies as st
from torch import Tensor

# In float32 on purpose: in float64 the zero violation of caption 2 under the best of both views rounds to 1e-16.
S = torch.tensor([[0.5, 0.45, 0.4], [0.35, 0.3, 0.2], [0.6, 0.5, 0.55]])
S2 = torch.tensor([[0.3, 0.45, 0.2], [0.5, 0.4, 0.1], [0.2, 0.3, 0.6]])


def embeddings_with(*sims: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (not of unit length) whose inner products are the given matrices, one a view."""
    return torch.stack(sims, dim=1), torch.eye(len(sims[0]), dtype=sims[0].dtype)


def random_batch(seed: int, pairs: int, views: int, dim: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors in float64, pairs a little closer than chance, some captions of the same image."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randn(pairs, dim, generator=generator, dtype=torch.float64)
    images = texts.unsqueeze(1) + 1.5 * torch.randn(pairs, views, dim, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, max(2, pairs // 2), (pairs,), generator=generator)
    return torch.nn.functional.normalize(images, dim=-1), torch.nn.functional.normalize(texts, dim=-1), ids


def nested(images: Tensor, texts: Tensor) -> list[list[list[float]]]:
    """Similarities as nested lists, by loops."""
    return [[[float(view @ text) for text in texts] for view in image] for image in images]


seeds = st.integers(0, 2**32 - 1)
pair_counts = st.integers(1, 7)
view_counts = st.integers(1, 4)
