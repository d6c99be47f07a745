"""Negatives of a caption's components: a word exchanged for one that makes them untrue of the image."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from preprocessing.captions.components import NO_WORD, ComponentTable, Ids, Numbers, rows_of
from preprocessing.captions.pools import Pools
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.randomness import Stream, sample_rng

Draws = npt.NDArray[np.float64]

# B or C captions of a batch; O objects, A pairs, T triples of all of them together; N negatives of each; L words of the
# longest triple; X triples of an image; P words of a pool; S components of any sort in the split.


class NegativesError(ValueError):
    """Negatives cannot be drawn from these pools; the message says why and what to do."""


class NegativeSampler:
    """Draws the negatives of UniVSE's component losses, again in each epoch.

    * An object's negatives are nouns of the pool that none of the captions of its image names.
    * A pair's or a triple's negatives have one word exchanged for a word of the pool, such that none of the captions of
      the image has the result.

    Each is uniform over all words that fulfil this, with replacement, and drawn by a generator keyed by (seed, epoch,
    caption), whatever else is in the batch. (Complete triples of other images, which UniVSE uses as well, are the
    batch's other triples; their numbers tell which are true of an image.) Words of a pool that the vocabulary lacks are
    not drawn. A pool without a word for some component is a NegativesError.

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
    ) -> None:
        nouns = _Pool("nouns", pools.nouns, vocabulary.find)
        adjectives = _Pool("adjectives", pools.adjectives, vocabulary.find)
        relations = _Pool("relations", pools.relations, components.relations.find)
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

            object_negatives_ON: nouns that none of the image's captions names.
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
    _, numbers_T = np.unique(components.triples_T3, axis=0, return_inverse=True)
    numbers_T = numbers_T.reshape(-1).astype(np.int64)
    image_T = np.repeat(components.image_C, np.diff(components.triple_starts))
    images, numbers = np.unique(np.stack([image_T, numbers_T]), axis=1)
    counts_I = np.bincount(images, minlength=components.image_C.max(initial=-1) + 1)
    table_IX = np.full((len(counts_I), counts_I.max(initial=0)), NO_WORD, dtype=np.int64)
    table_IX[np.arange(table_IX.shape[1]) < counts_I[:, None]] = numbers
    return numbers_T, table_IX


class _Pool:
    """Words or relations to draw from: their ids ascending, at positions from 0."""

    def __init__(self, name: str, words: Iterable[str], find: Callable[[str], int | None]) -> None:
        ids = sorted(word_id for word in words if (word_id := find(word)) is not None)
        if not ids:
            raise NegativesError(
                f"the vocabulary has none of the pool's {name}: build it with the words of components as extra words"
            )
        self.name = name
        self.ids_P = np.array(ids, dtype=np.int32)


class _Sort:
    """All components of a sort by their words' `ids` (S, width); each column has its pool and number of negatives."""

    def __init__(self, ids: Ids, starts: Numbers, image_C: Numbers, exchanges: Sequence[tuple[_Pool, int]]) -> None:
        self.ids = ids
        self.starts = starts
        self.num_negatives = sum(count for _, count in exchanges)
        image_S = np.repeat(image_C, np.diff(starts))
        self._exchanges = [_Exchange(ids, image_S, column, *exchange) for column, exchange in enumerate(exchanges)]

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

    Components of an image that differ in this word alone forbid the same words of the pool. For a group of such, with
    forbidden positions f_0 < f_1 < ..., the k-th free position is k plus the number of all f_j - j up to k.
    """

    def __init__(self, ids: Ids, image_S: Numbers, column: int, pool: _Pool, count: int) -> None:
        self.column = column
        self.count = count
        self._pool = pool
        rest = np.delete(ids, column, axis=1)
        _, group_S = np.unique(np.column_stack([image_S, rest]), axis=0, return_inverse=True)
        self._group_S = group_S.reshape(-1).astype(np.int64)
        # Each group and forbidden position once, by group, then position.
        self._stride = len(pool.ids_P) + 1
        in_pool_S = np.isin(ids[:, column], pool.ids_P)
        positions = np.searchsorted(pool.ids_P, ids[in_pool_S, column])
        forbidden = np.unique(self._group_S[in_pool_S] * self._stride + positions)
        groups = np.arange(self._group_S.max(initial=-1) + 2)
        self._first_G1 = np.searchsorted(forbidden, groups * self._stride)
        self._free_G = len(pool.ids_P) - np.diff(self._first_G1)
        self._shifted = forbidden - (np.arange(len(forbidden)) - self._first_G1[forbidden // self._stride])
        empty = np.count_nonzero(self._free_G[self._group_S] == 0)
        if count and empty:
            raise NegativesError(
                f"all {len(pool.ids_P)} {pool.name} of the pool are true of the image in {empty} components: lower "
                f"pools.min_{pool.name}, so that it has more words"
            )

    def words(self, rows: Numbers, draws: Draws) -> Ids:
        """Return the pool's words on which these draws fall."""
        group = self._group_S[rows, None]
        free = (draws * self._free_G[group]).astype(np.int64)
        skipped = np.searchsorted(self._shifted, group * self._stride + free, side="right")
        chosen: Ids = self._pool.ids_P[free + skipped - self._first_G1[group]]
        return chosen
