"""Negatives of a caption's components: a word exchanged for one that makes them untrue of the image."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from preprocessing.captions.components import NO_WORD, ComponentTable, Ids, Numbers, rows_of
from preprocessing.captions.pools import Pools
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.captions.word_lists import kind_of_adjective
from preprocessing.captions.wordnet.taxonomy import load_taxonomy
from preprocessing.randomness import Stream, sample_rng

Draws = npt.NDArray[np.float64]

# B or C captions of a batch; O objects, A pairs, T triples of all of them together; N negatives of each; L words of the
# longest triple; X triples of an image; P words of a pool; S components of any sort in the split, R of them; G groups
# of components.

NegativesFrom = Literal["uniform", "captions"]
"""How often a word of a pool is drawn: each equally often, or as often as training captions use it."""

_Alike = Callable[[str, str], bool]


class NegativesError(ValueError):
    """Negatives cannot be drawn from these pools; the message says why and what to do."""


class NegativeSampler:
    """Draws the negatives of UniVSE's component losses, again in each epoch.

    * An object's negatives are nouns of the pool that are objects of none of the captions of its image.
    * A pair's or a triple's negatives have one word exchanged for a word of the pool, such that none of the captions of
      the image has the result among its components.

    Differs from the paper: its nouns are in none of the captions. Here a noun that a caption says, but the parser does
    not list as an object ("tennis" of "plays tennis"), may be drawn.

    Each is drawn with replacement by a generator keyed by (seed, epoch, caption), whatever else is in the batch.
    (Complete triples of other images, which UniVSE uses as well, are the batch's other triples; their numbers tell
    which are true of an image.) Words of a pool that the vocabulary lacks are not drawn. A pool without a word for some
    component is a NegativesError.

    By default all words that fulfil this are drawn equally often. How often two words occur together then tells most
    pairs from their negatives without the image. With `source` "captions" negatives are as likely as what is true:

    * an adjective is drawn by how often the noun has it, a noun by how often it has the adjective (and a share of one
      more, by its frequency in pairs), any other word by its frequency in its place;
    * not what may be true as well: words that WordNet relates to one of the image's ("person" for "man"), relations
      that have all the words of one ("stand on" for "on") or the other way round;
    * for an adjective only others of its kind, if there are any (:func:`kind_of_adjective`): a brown dog may be small.

    ``objects``, ``pairs`` and ``triples`` are the numbers of negatives of each, by the word that is exchanged: noun;
    attribute, noun; subject, relation, object (the defaults: UniVSE's appendix).
    """

    def __init__(
        self,
        components: ComponentTable,
        pools: Pools,
        vocabulary: Vocabulary,
        seed: int,
        objects: int = 16,
        pairs: tuple[int, int] = (8, 8),
        triples: tuple[int, int, int] = (2, 4, 2),
        source: NegativesFrom = "uniform",
    ) -> None:
        alike = _ALIKE if source == "captions" else {}
        words, lemmas = (vocabulary.find, vocabulary.word), components.relations
        nouns = _Pool("nouns", pools.nouns, *words, alike.get("nouns"))
        adjectives = _Pool("adjectives", pools.adjectives, *words, alike.get("adjectives"))
        named = (lemmas.find, lemmas.lemmas.__getitem__)
        relations = _Pool("relations", pools.relations, *named, alike.get("relations"))
        of_pairs = list(zip((adjectives, nouns), pairs, strict=True))
        of_triples = list(zip((nouns, relations, nouns), triples, strict=True))
        self._components = components
        self._sorts = (
            _Sort(components.objects_O[:, None], components.object_starts, components.image_C, [(nouns, objects)]),
            _Sort(components.pairs_A2, components.pair_starts, components.image_C, of_pairs),
            _Sort(components.triples_T3, components.triple_starts, components.image_C, of_triples),
        )
        self._triple_numbers_T, self._true_triples_IX = _true_triples(components)
        self._seed = seed

    def batch(self, captions_B: npt.NDArray[np.integer], epoch: int) -> dict[str, npt.NDArray[np.integer]]:
        """Return the components of these captions, by their numbers in the split, and their negatives in this epoch.

        There is what :meth:`ComponentTable.select` returns (any of O, A and T may be 0), and:

            object_negatives_ON: nouns that are objects of none of the image's captions.
            pair_negatives_AN2: first those with another attribute, then those with another noun.
            triple_negatives_TNL: first other subjects, then other relations, then other objects.
            triple_numbers_T: int64, the same for equal triples of the split.
            true_triples_CX: numbers of the triples that some caption of the row's image has, filled up with -1.
        """
        chosen = [rows_of(sort.starts, captions_B) for sort in self._sorts]
        draws = self._draws(captions_B, epoch, [sizes_B for _, _, sizes_B in chosen])
        (objects, _, _), (pairs, _, _), (triples, _, _) = chosen
        object_sort, pair_sort, triple_sort = self._sorts
        own_T13, negatives_TN3 = triple_sort.ids[triples, None], triple_sort.exchange(triples, draws[2])
        triples_TVL = self._components.relations.read(np.concatenate([own_T13, negatives_TN3], axis=1))
        return self._components.select(captions_B) | {
            "object_negatives_ON": object_sort.exchange(objects, draws[0])[:, :, 0],
            "pair_negatives_AN2": pair_sort.exchange(pairs, draws[1]),
            "triples_TL": triples_TVL[:, 0],
            "triple_negatives_TNL": triples_TVL[:, 1:],
            "triple_numbers_T": self._triple_numbers_T[triples],
            "true_triples_CX": self._true_triples_IX[self._components.image_C[captions_B]],
        }

    def _draws(self, captions_B: npt.NDArray[np.integer], epoch: int, sizes: Sequence[Numbers]) -> list[Draws]:
        """Draw from U(0, 1) for each component of a sort and each of its negatives, caption by caption."""
        widths = [sort.num_negatives for sort in self._sorts]
        drawn = [[np.empty((0, width))] for width in widths]
        for row, caption in enumerate(captions_B.tolist()):
            rng = sample_rng(self._seed, epoch, caption, Stream.NEGATIVE)
            for sort, width, sizes_B in zip(drawn, widths, sizes, strict=True):
                sort.append(rng.random((sizes_B[row], width)))
        return [np.concatenate(sort) for sort in drawn]


def _true_triples(components: ComponentTable) -> tuple[Numbers, Numbers]:
    """Number the split's triples (T,), equal ones alike; and the numbers of each image's (I, X), filled up with -1."""
    numbers_T = _numbered(components.triples_T3)
    image_T = np.repeat(components.image_C, np.diff(components.triple_starts))
    images, numbers = np.unique(np.stack([image_T, numbers_T]), axis=1)
    counts_I = np.bincount(images, minlength=components.image_C.max(initial=-1) + 1)
    table_IX = np.full((len(counts_I), counts_I.max(initial=0)), NO_WORD, dtype=np.int64)
    table_IX[np.arange(table_IX.shape[1]) < counts_I[:, None]] = numbers
    return numbers_T, table_IX


def _have_common_words(one: str, other: str) -> bool:
    """Return whether one relation has all the words of the other."""
    first, second = set(one.split()), set(other.split())
    return first <= second or second <= first


_ALIKE: dict[str, _Alike] = {
    "nouns": lambda one, other: load_taxonomy().same_or_kind_of(one, other, "noun"),
    "adjectives": lambda one, other: load_taxonomy().same_or_kind_of(one, other, "adjective"),
    "relations": _have_common_words,
}
"""Whether what is true with one word may be true with another, by the pool."""


class _Pool:
    """Words or relations to draw from: their ids ascending, at positions from 0.

    With `alike` they are drawn as captions use them, and without what is alike; else equally often.
    """

    def __init__(
        self,
        name: str,
        words: Iterable[str],
        find: Callable[[str], int | None],
        word: Callable[[int], str],
        alike: _Alike | None,
    ) -> None:
        ids = sorted(word_id for word in words if (word_id := find(word)) is not None)
        if not ids:
            raise NegativesError(
                f"the vocabulary has none of the pool's {name}: build it with the words of components as extra words"
            )
        self.name = name
        self.ids_P = np.array(ids, dtype=np.int32)
        self.is_weighted = alike is not None
        self._word, self._alike = word, alike
        self._words = [word(word_id) for word_id in ids]
        self._forbidden: dict[int, Numbers] = {}

    def forbidden_by(self, word_id: int) -> Numbers:
        """Return the positions of what may be true if a word is, the word's own among them."""
        if self._alike is None:
            return np.flatnonzero(self.ids_P == word_id)
        if word_id not in self._forbidden:
            word = self._word(word_id)
            self._forbidden[word_id] = np.flatnonzero([self._alike(word, other) for other in self._words])
        return self._forbidden[word_id]

    def of_its_kind(self, word_id: int) -> npt.NDArray[np.bool_]:
        """Return which words (P,) are adjectives of the same kind; all of nouns and relations."""
        if self.name != "adjectives":
            return np.ones(len(self._words), bool)
        kind = kind_of_adjective(self._word(word_id))
        return np.array([kind_of_adjective(other) == kind for other in self._words])


class _Sort:
    """All components of a sort by their words' `ids` (S, width); each column has its pool and number of negatives."""

    def __init__(self, ids: Ids, starts: Numbers, image_C: Numbers, exchanges: Sequence[tuple[_Pool, int]]) -> None:
        self.ids = ids
        self.starts = starts
        self.num_negatives = sum(count for _, count in exchanges)
        image_S = np.repeat(image_C, np.diff(starts))
        used = [(column, *exchange) for column, exchange in enumerate(exchanges) if exchange[1]]
        self._exchanges = [_Exchange(ids, image_S, *exchange) for exchange in used]

    def exchange(self, rows: Numbers, draws: Draws) -> Ids:
        """Return negatives of the components in these rows, shape (rows, negatives, width)."""
        negatives = np.repeat(self.ids[rows, None, :], self.num_negatives, axis=1)
        begin = 0
        for exchange in self._exchanges:
            end = begin + exchange.count
            negatives[:, begin:end, exchange.column] = exchange.words(rows, draws[:, begin:end])
            begin = end
        return negatives


class _Exchange:
    """One word of a sort's components exchanged for words of a pool; NegativesError if a component has no negative.

    Components of an image that differ in this word alone forbid the same words of the pool.
    """

    def __init__(self, ids: Ids, image_S: Numbers, column: int, pool: _Pool, count: int) -> None:
        self.column = column
        self.count = count
        self._pool = pool
        rest = np.delete(ids, column, axis=1)
        self._group_S = _numbered(np.column_stack([image_S, rest]))
        words, word_S = np.unique(ids[:, column], return_inverse=True)
        self._word_S, size = word_S.reshape(-1), len(pool.ids_P)
        forbidden = [pool.forbidden_by(word_id) for word_id in words.tolist()]
        rows, owners, _ = rows_of(np.cumsum([0, *map(len, forbidden)]), self._word_S)
        positions = np.concatenate([np.empty(0, np.int64), *forbidden])[rows]
        # Each group and forbidden position once, by group, then position.
        keys = np.unique(self._group_S[owners] * size + positions)
        self._starts_G = np.searchsorted(keys, np.arange(self._group_S.max(initial=-1) + 2) * size)
        self._forbidden = keys % size
        empty = np.count_nonzero(np.diff(self._starts_G)[self._group_S] == size)
        if empty:
            raise NegativesError(
                f"all {size} {pool.name} of the pool are true of the image in {empty} components: lower "
                f"pools.min_{pool.name}, so that it has more words"
            )
        self._weights_GP, self._given_S = np.ones((1, size)), np.zeros(len(ids), np.int64)
        if pool.is_weighted:
            if ids.shape[1] == 2:
                self._given_S = _numbered(rest)
            self._weights_GP = _frequencies(pool, ids[:, column], self._given_S)
            self._of_kind_WP = np.array([pool.of_its_kind(word_id) for word_id in words.tolist()]).reshape(-1, size)

    def words(self, rows: Numbers, draws: Draws) -> Ids:
        """Return the pool's words on which these draws fall."""
        weights_RP = self._weights_GP[self._given_S[rows]]
        places, owners, _ = rows_of(self._starts_G, self._group_S[rows])
        weights_RP[owners, self._forbidden[places]] = 0
        if self._pool.is_weighted:
            of_kind_RP = weights_RP * self._of_kind_WP[self._word_S[rows]]
            weights_RP = np.where(of_kind_RP.any(axis=1, keepdims=True), of_kind_RP, weights_RP)
        return self._pool.ids_P[_drawn(weights_RP, draws)]


def _numbered(rows: npt.NDArray[np.integer]) -> Numbers:
    """Number the distinct rows of an array, and return each row's number."""
    numbers: Numbers = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def _frequencies(pool: _Pool, ids_S: Ids, given_S: Numbers) -> Draws:
    """Return how often each word of the pool occurs with what is given (G, P), and a share of one more."""
    positions = np.searchsorted(pool.ids_P, ids_S)
    known_S = np.isin(ids_S, pool.ids_P)
    counts_GP = np.zeros((given_S.max(initial=0) + 1, len(pool.ids_P)))
    np.add.at(counts_GP, (given_S[known_S], positions[known_S]), 1)
    # Words that the captions never use in this place keep a chance.
    used_P = counts_GP.sum(axis=0) + 1
    weights_GP: Draws = counts_GP + used_P / used_P.sum()
    return weights_GP


def _drawn(weights_RP: Draws, draws_RN: Draws) -> Numbers:
    """Return the positions (R, N) on which draws from U(0, 1) fall, in proportion to each row's weights."""
    rows_R1 = np.arange(len(weights_RP))[:, None]
    sums_RP = weights_RP.cumsum(axis=1)
    ends_RP = rows_R1 + sums_RP / sums_RP[:, -1:]
    # A draw next to 1 would otherwise be rounded into the next row.
    targets_RN = np.minimum(rows_R1 + draws_RN, np.nextafter(rows_R1 + 1.0, 0.0))
    before_R1 = rows_R1 * weights_RP.shape[1]
    positions_RN: Numbers = np.searchsorted(ends_RP.reshape(-1), targets_RN, side="right") - before_R1
    return positions_RN
