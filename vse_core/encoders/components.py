"""Text encoder of UniVSE: words, pairs, triples and sentences through one object encoder and one combiner.

C captions, L tokens, W words, U distinct ones, V of them in phrases, M phrases, D width of the joint space.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.encoders.text import GRUStart, WordEmbedding, fill_embedding, start_gru
from vse_core.products import Linear, linear
from vse_core.recurrent import gru_states, last_state
from vse_core.similarity import unit_length
from vse_core.static_shapes import has_static_shapes


class ObjectEncoder(nn.Module):
    """Fuse a word's meaning with that of its modifier by a gate: the object encoder phi (UniVSE, section 3.2).

    A word has a basic and a modifier embedding. A noun n is ``basic_n`` with ``modifier_n``, an adjective a with its
    noun is ``basic_n`` with ``modifier_a``, so that a noun by itself is modified by itself. With w the two of them,

        phi(w) = Norm( sigmoid(W1 w + b1) * tanh(W2 w + b2) ).

    Both embeddings, ``word_dim`` and ``modifier_dim`` wide, begin with U(-0.1, 0.1). Without ``train_words`` the basic
    ones stay what :meth:`ComponentEncoder.set_word_vectors` gives, zero for all other words.
    """

    def __init__(
        self, vocabulary_size: int, embed_dim: int, word_dim: int, modifier_dim: int, train_words: bool
    ) -> None:
        super().__init__()
        self.basic = WordEmbedding(vocabulary_size, word_dim)
        self.modifier = WordEmbedding(vocabulary_size, modifier_dim)
        bound = 0.1 if train_words else 0.0
        nn.init.uniform_(self.basic.weight, -bound, bound)
        nn.init.uniform_(self.modifier.weight, -0.1, 0.1)
        self.basic.weight.requires_grad_(train_words)
        # W1 and W2, one below the other.
        self.fusion = Linear(word_dim + modifier_dim, 2 * embed_dim)

    def forward(self, modifiers_U: Tensor, nouns_U: Tensor) -> Tensor:
        """Encode nouns (U,) with their modifiers (U,), which are the nouns themselves if there are none: (U, D)."""
        words_UE = torch.cat([self.basic(nouns_U), self.modifier(modifiers_U)], dim=-1)
        gate_UD, value_UD = self.fusion(words_UE).chunk(2, dim=-1)
        return unit_length(torch.sigmoid(gate_UD) * torch.tanh(value_UD))


class NeuralCombiner(nn.Module):
    """A GRU that reads encoded words and ends in their meaning: the combiner psi (UniVSE, section 3.2)."""

    def __init__(self, embed_dim: int, start: GRUStart = "published") -> None:
        super().__init__()
        self.gru = nn.GRU(embed_dim, embed_dim, batch_first=True)
        start_gru(self.gru, start)

    def sentences(self, words_CLD: Tensor, lengths_C: Tensor) -> Tensor:
        """Read C sequences of different lengths (C,): (C, D) last states of unit length."""
        return unit_length(last_state(self.gru, words_CLD, lengths_C))

    def phrases(self, words_UD: Tensor, phrases_MK: Tensor) -> Tensor:
        """Read M sequences of up to K words, rows of ``words_UD`` before any -1: (M, D) last states of unit length.

        A triple and its negatives begin alike, and so do many triples of a batch: each distinct beginning is read once,
        and each word is multiplied with the GRU's weights once. With static shapes every sequence is read by itself.
        """
        if has_static_shapes(words_UD):
            is_read_MK = phrases_MK >= 0
            return unit_length(last_state(self.gru, words_UD[phrases_MK.clamp(min=0)], is_read_MK.sum(dim=1)))
        used_V, words_MK = phrases_MK.clamp(min=0).unique(return_inverse=True)
        steps, place_M = _beginnings(words_MK, phrases_MK >= 0, len(used_V))
        input_weight, state_weight, input_bias, state_bias = self.gru.all_weights[0]
        inputs_VG = linear(words_UD[used_V], input_weight, input_bias)
        states = [words_UD.new_zeros(1, words_UD.shape[1])]
        for before_P, word_P in steps:
            recurrent_PG = linear(states[-1], state_weight, state_bias)[before_P]
            states.append(_gru_step(inputs_VG[word_P], recurrent_PG, states[-1][before_P]))
        ends_E, end_of_M = place_M.unique(return_inverse=True)
        return unit_length(torch.cat(states)[ends_E])[end_of_M]


def _beginnings(words_MK: Tensor, is_read_MK: Tensor, words: int) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Return the distinct beginnings of M phrases of numbered words, by length, and which of all each phrase is (M,).

    A beginning of P of one length is the row of that without its last word among those one shorter, and that word. The
    first of all is the empty one.
    """
    steps, row_M, place_M, first = [], words_MK.new_zeros(len(words_MK)), words_MK.new_zeros(len(words_MK)), 1
    for word_M, is_read_M in zip(words_MK.unbind(1), is_read_MK.unbind(1), strict=True):
        read_R = is_read_M.nonzero().squeeze(1)
        keys_P, row_R = (row_M[read_R] * words + word_M[read_R]).unique(return_inverse=True)
        before_P = keys_P.div(max(words, 1), rounding_mode="floor")
        steps.append((before_P, keys_P - before_P * words))
        row_M, place_M = row_M.index_copy(0, read_R, row_R), place_M.index_copy(0, read_R, first + row_R)
        first += len(keys_P)
    return steps, place_M


def _gru_step(inputs_PG: Tensor, recurrent_PG: Tensor, states_PD: Tensor) -> Tensor:
    """One step of PyTorch's GRU, from its weights' products with the inputs and with the states."""
    reset_in, update_in, new_in = inputs_PG.chunk(3, dim=-1)
    reset_state, update_state, new_state = recurrent_PG.chunk(3, dim=-1)
    update_PD = torch.sigmoid(update_in + update_state)
    new_PD = torch.tanh(new_in + torch.sigmoid(reset_in + reset_state) * new_state)
    return new_PD + update_PD * (states_PD - new_PD)


class SentencePooling(nn.Module):
    """Aggregated states of a BiGRU over encoded words, as VSE-infinity reads sentences (not in UniVSE's paper)."""

    def __init__(self, embed_dim: int, pooling: nn.Module) -> None:
        super().__init__()
        self.gru = nn.GRU(embed_dim, embed_dim, batch_first=True, bidirectional=True)
        self.pooling = pooling

    def forward(self, words_CLD: Tensor, lengths_C: Tensor) -> Tensor:
        """Read C sequences of lengths (C,): (C, D) of unit length."""
        return unit_length(self.pooling(gru_states(self.gru, words_CLD, lengths_C), lengths_C))


class ComponentEncoder(nn.Module):
    """Sentences, nouns, pairs and triples in one space, with the same weights (UniVSE, section 3.2).

    Args, besides those of :class:`ObjectEncoder`:
        start: of the combiner's weights (:func:`~vse_core.encoders.text.start_gru`).
        relations: whether triples have the words of relations one by one, or a joined word that stands for them (the
            paper does not say). Not used here, but kept for those who make the triples.
        numerals, surface_words: whether pairs may be numbers with their nouns, and components are in the words of the
            sentence rather than in base forms; kept in the same way.
        pooling: of :class:`SentencePooling`; None, as in the paper, leaves sentences to the combiner.
        alpha: weight of the sentence in a caption's vector (:func:`combine`), from 0 to 1.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embed_dim: int,
        word_dim: int = 300,
        modifier_dim: int = 100,
        train_words: bool = True,
        start: GRUStart = "orthogonal_bias",
        relations: Literal["words", "joined"] = "joined",
        numerals: bool = False,
        pooling: nn.Module | None = None,
        alpha: float = 0.75,
        surface_words: bool = False,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.vocabulary_size = vocabulary_size
        self.relations: Literal["words", "joined"] = relations
        self.numerals = numerals
        self.surface_words = surface_words
        self.objects = ObjectEncoder(vocabulary_size, embed_dim, word_dim, modifier_dim, train_words)
        self.combiner = NeuralCombiner(embed_dim, start)
        self.sentences = None if pooling is None else SentencePooling(embed_dim, pooling)

    def set_word_vectors(self, words_W: Tensor, vectors_WE: Tensor) -> None:
        """Initialise some of the basic embeddings with given vectors, GloVe's for instance."""
        fill_embedding(self.objects.basic, words_W, vectors_WE)

    def forward(
        self, tokens_CL: Tensor, lengths_C: Tensor, objects: Tensor, pairs: Tensor, triples: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Encode sentences and components at once, each distinct word and pair a single time.

        Objects (...) are ids of nouns, pairs (..., 2) of adjectives and nouns, triples (..., L) of subjects, words of
        relations and objects, filled up with -1. Returns unit vectors of the sentences (C, D), the objects, the pairs
        and the triples (..., D).
        """
        read = triples.clamp(min=0)
        keys = [self._word_keys(tokens_CL), self._word_keys(objects), self._pair_keys(pairs), self._word_keys(read)]
        words_UD, (words_CL, words, phrases, sequences) = self._encode_distinct(keys)
        return (
            self._read_sentences(words_UD[words_CL], lengths_C),
            words_UD[words],
            words_UD[phrases],
            self._read_triples(words_UD, sequences.masked_fill(triples < 0, -1)),
        )

    def encode_sentences(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """Encode captions (C, L) of lengths (C,) as sequences of words: (C, D)."""
        words_UD, (words_CL,) = self._encode_distinct([self._word_keys(tokens_CL)])
        return self._read_sentences(words_UD[words_CL], lengths_C)

    def encode_phrases(self, phrases: Tensor) -> Tensor:
        """Encode nouns (..., 1), adjectives with nouns (..., 2) or triples (..., L), filled up with -1: (..., D)."""
        if phrases.shape[-1] <= 2:
            words_UD, (rows,) = self._encode_distinct([self._pair_keys(phrases)])
            return words_UD[rows]
        words_UD, (sequences,) = self._encode_distinct([self._word_keys(phrases.clamp(min=0))])
        return self._read_triples(words_UD, sequences.masked_fill(phrases < 0, -1))

    def _read_sentences(self, words_CLD: Tensor, lengths_C: Tensor) -> Tensor:
        read = self.combiner.sentences if self.sentences is None else self.sentences
        return read(words_CLD, lengths_C)

    def _read_triples(self, words_UD: Tensor, sequences: Tensor) -> Tensor:
        vectors_MD = self.combiner.phrases(words_UD, sequences.flatten(end_dim=-2))
        return vectors_MD.view(*sequences.shape[:-1], vectors_MD.shape[1])

    def _word_keys(self, words: Tensor) -> Tensor:
        return words * self.vocabulary_size + words

    def _pair_keys(self, pairs: Tensor) -> Tensor:
        return pairs[..., 0] * self.vocabulary_size + pairs[..., -1]

    def _encode_distinct(self, keys: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Vectors (U, D) of the distinct keys, and for every tensor of keys the rows of its own.

        With static shapes all count as distinct.
        """
        all_keys = torch.cat([key.flatten() for key in keys])
        if has_static_shapes(all_keys):
            distinct_U, rows = all_keys, torch.arange(len(all_keys), device=all_keys.device)
        else:
            distinct_U, rows = all_keys.unique(return_inverse=True)
        modifiers_U = distinct_U.div(self.vocabulary_size, rounding_mode="floor")
        words_UD: Tensor = self.objects(modifiers_U, distinct_U - modifiers_U * self.vocabulary_size)
        shares = rows.split([key.numel() for key in keys])
        return words_UD, [share.view(key.shape) for share, key in zip(shares, keys, strict=True)]


def compose(count: int, vectors: list[Tensor], owners: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Add up the components of each caption: u_comp (UniVSE, section 3.2; the sum is the aggregation of its appendix).

    ``vectors`` (M, D) and ``owners`` (M,), the rows of their captions, are one tensor a kind of component. Returns
    (C, D) unit vectors, zero for a caption without components; and (C,) whether it has any.
    """
    vectors_MD, owners_M = torch.cat(vectors), torch.cat(owners)
    sums_CD = vectors_MD.new_zeros(count, vectors_MD.shape[1]).index_add(0, owners_M, vectors_MD)
    has_C = torch.zeros(count, dtype=torch.bool, device=owners_M.device).index_fill(0, owners_M, True)
    return unit_length(sums_CD), has_C


def combine(sentences_CD: Tensor, composed_CD: Tensor, has_C: Tensor, alpha: float) -> Tensor:
    """Mix sentences and composed components: u_cap = ``Norm(alpha * u_sent + (1 - alpha) * u_comp)`` (UniVSE, 3.2).

    A caption without components, by ``has_C``, is its sentence alone; alpha lies in [0, 1].

    Differs from the paper: it does not say that the combination is normalised, but without that the captions of one
    image would be ranked by their lengths as well.
    """
    return torch.where(has_C.unsqueeze(1), unit_length(alpha * sentences_CD + (1 - alpha) * composed_CD), sentences_CD)
