"""Text encoder over word indices: embedding, GRU, aggregator."""

from typing import Literal

from torch import Tensor, nn

from vse_core.encoders.gru_start import GRUStart, fill_embedding, start_gru
from vse_core.recurrent import gru_states, word_states
from vse_core.similarity import unit_length


class BiGRUEncoder(nn.Module):
    """Word vectors through a bidirectional GRU whose directions are averaged, then pooled (VSE-infinity, section 4.1).

    Args:
        vocabulary_size: number of word indices.
        embed_dim: D, width of the GRU and of the joint space.
        pooling: aggregator called with ``(features_CLD, lengths_C)``.
        word_dim: width of the word vectors, initialised from U(-0.1, 0.1); see also :meth:`set_word_vectors`.
        directions: 1 reads forwards only, as in VSE++ and the released MV-VSE code (with ``last`` for the pooling).
        dropout: share of the word vectors' values that training leaves out (0.2 in HGR's code).
        start: of the GRU's weights (:func:`~vse_core.encoders.gru_start.start_gru`).
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
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.rnn = nn.GRU(word_dim, embed_dim, batch_first=True, bidirectional=directions == 2)
        start_gru(self.rnn, start)
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)

    def set_word_vectors(self, words_W: Tensor, vectors_WE: Tensor) -> None:
        """Initialise some of the words with given vectors, GloVe's for instance; all are fine-tuned."""
        fill_embedding(self.embed, words_W, vectors_WE)

    def forward(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode (C, L) word indices with lengths (C,) into (C, D) vectors of unit length."""
        return unit_length(self.pooling(self.states(tokens_CL, lengths_C), lengths_C))

    def states(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Return the GRU's states (C, L, D), one a word; zero beyond a caption's end."""
        if self.training and self.dropout.p:
            return gru_states(self.rnn, self.dropout(self.embed(tokens_CL)), lengths_C)
        return word_states(self.rnn, self.embed, tokens_CL, lengths_C)
