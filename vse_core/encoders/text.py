"""Text encoder over word indices: embedding, GRU, aggregator; and what words and GRUs start from."""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.recurrent import gru_states, word_states
from vse_core.similarity import unit_length

GRUStart = Literal["published", "bias", "orthogonal", "orthogonal_bias"]
_LEARNED_STD = 0.3785  # of VSE-C's released code, near that of GloVe's numbers


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


class WordEmbedding(nn.Embedding):
    """Vectors of words, a row for each id of a vocabulary; other tables of vectors are not of this class.

    Training that starts from a model of other words finds its tables by the class
    (:func:`~vse_core.models.start_from`).
    """


@torch.no_grad()
def fill_embedding(embedding: WordEmbedding, words_W: Tensor, vectors_WE: Tensor) -> None:
    """Give the words (W,) of an embedding their vectors (W, E); ValueError if the shapes disagree."""
    needed, given = (len(words_W), embedding.embedding_dim), tuple(vectors_WE.shape)
    if given != needed:
        raise ValueError(f"{len(words_W)} words need vectors of the shape {needed}, got {given}")
    embedding.weight[words_W] = vectors_WE.to(embedding.weight)


class BiGRUEncoder(nn.Module):
    """Word vectors through a bidirectional GRU whose directions are averaged, then pooled (VSE-infinity, section 4.1).

    Args:
        vocabulary_size: number of word indices.
        embed_dim: D, width of the GRU and of the joint space.
        pooling: aggregator called with ``(features_CLD, lengths_C)``.
        word_dim: width of the word vectors, initialised from U(-0.1, 0.1); see also :meth:`set_word_vectors`.
        directions: 1 reads forwards only, as in VSE++ and the released MV-VSE code (with ``last`` for the pooling).
        dropout: share of the word vectors' values that training leaves out (0.2 in HGR's code).
        start: of the GRU's weights (:func:`start_gru`).
        learned_dim: width of a second vector of each word, from N(0, 0.3785), behind the first; only it is learned then
            (VSE-C: 100), and the first stays what :meth:`set_word_vectors` gives, zero for all other words.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embed_dim: int,
        pooling: nn.Module,
        word_dim: int = 300,
        directions: Literal[1, 2] = 2,
        dropout: float = 0.0,
        start: GRUStart = "published",
        learned_dim: int = 0,
    ) -> None:
        super().__init__()
        self.embed = WordEmbedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.learned = WordEmbedding(vocabulary_size, learned_dim) if learned_dim else None
        if self.learned is not None:
            nn.init.normal_(self.learned.weight, std=_LEARNED_STD)
            nn.init.zeros_(self.embed.weight).requires_grad_(False)
        self.rnn = nn.GRU(word_dim + learned_dim, embed_dim, batch_first=True, bidirectional=directions == 2)
        start_gru(self.rnn, start)
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)

    def set_word_vectors(self, words_W: Tensor, vectors_WE: Tensor) -> None:
        """Initialise some of the words with given vectors, GloVe's for instance."""
        fill_embedding(self.embed, words_W, vectors_WE)

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode (C, L) word indices with lengths (C,) into (C, D) vectors of unit length."""
        return unit_length(self.pooling(self.states(tokens_CL, lengths_C), lengths_C))

    def states(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Return the GRU's states (C, L, D), one a word; those beyond a caption's end mean nothing."""
        if self.training and self.dropout.p:
            return gru_states(self.rnn, self.dropout(self._words(tokens_CL)), lengths_C)
        return word_states(self.rnn, self._words, tokens_CL, lengths_C)

    def _words(self, tokens: Tensor) -> Tensor:
        words: Tensor = self.embed(tokens)
        return words if self.learned is None else torch.cat([words, self.learned(tokens)], dim=-1)
