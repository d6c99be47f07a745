"""Word embeddings that begin with vectors learned elsewhere."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def fill_embedding(embedding: nn.Embedding, words_W: Tensor, vectors_WE: Tensor) -> None:
    """Give the words (W,) of an embedding their vectors (W, E); ValueError if the shapes disagree."""
    if vectors_WE.shape != (len(words_W), embedding.embedding_dim):
        raise ValueError(
            f"{len(words_W)} words need vectors of the shape {(len(words_W), embedding.embedding_dim)}, "
            f"got {tuple(vectors_WE.shape)}"
        )
    embedding.weight[words_W] = vectors_WE.to(embedding.weight)
