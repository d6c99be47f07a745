"""Initial weights: of GRUs that are read at their last state, and of words whose vectors were learned elsewhere."""

from typing import Literal

import torch
from torch import Tensor, nn

GRUStart = Literal["published", "bias", "orthogonal", "orthogonal_bias"]


@torch.no_grad()
def start_gru(gru: nn.GRU, start: GRUStart) -> None:
    """Set the initial weights of a GRU; ``published`` leaves PyTorch's, from U(-1/sqrt(D), 1/sqrt(D)).

    A state is ``h' = (1 - z) n + z h`` with the update gate z: PyTorch's start halves what is known of a word with each
    word that follows, and its recurrent weights shrink the rest, so that a last state knows little of a caption but its
    end. ``bias`` begins with an update gate of sigmoid(1) = .73, ``orthogonal`` with orthogonal recurrent and
    Xavier-uniform input weights for each gate and all other biases zero, ``orthogonal_bias`` with both.
    """
    width = gru.hidden_size
    for name, values in gru.named_parameters():
        if name.startswith("bias"):
            if "orthogonal" in start:
                values.zero_()
            if "bias" in start and name.startswith("bias_ih"):
                values[width : 2 * width] += 1  # PyTorch's order is reset, update, new
        elif "orthogonal" in start:
            for gate in values.chunk(3):
                nn.init.orthogonal_(gate) if name.startswith("weight_hh") else nn.init.xavier_uniform_(gate)


@torch.no_grad()
def fill_embedding(embedding: nn.Embedding, words_W: Tensor, vectors_WE: Tensor) -> None:
    """Give the words (W,) of an embedding their vectors (W, E); ValueError if the shapes disagree."""
    if vectors_WE.shape != (len(words_W), embedding.embedding_dim):
        raise ValueError(
            f"{len(words_W)} words need vectors of the shape {(len(words_W), embedding.embedding_dim)}, "
            f"got {tuple(vectors_WE.shape)}"
        )
    embedding.weight[words_W] = vectors_WE.to(embedding.weight)
