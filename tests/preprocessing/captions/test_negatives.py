"""Negatives of components: never true of the image, exact in number, uniform, and the same in every batch."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.captions.components import (
    NO_WORD,
    ComponentTable,
    nouns_of,
    pairs_of,
    triples_of,
)
from preprocessing.captions.graph import Attribute, Relation, SceneGraph, SceneObject
from preprocessing.captions.negatives import NegativeSampler, NegativesError
from preprocessing.captions.pools import Pools
from preprocessing.captions.vocabulary import Vocabulary
from tests.preprocessing.captions.markup import graph

NOUNS = [f"n{i}" for i in range(7)]
ADJECTIVES = [f"a{i}" for i in range(5)]
RELATIONS = ["r0", "r1 of", "r2", "r3"]
# Spare words of each pool, which no caption has: so there is always one to draw.
POOLS = Pools((*NOUNS[:5], "spare noun"), (*ADJECTIVES[:3], "spare adjective"), (*RELATIONS[:3], "spare in relation"))
RELATION_WORDS = {word for relation in (*RELATIONS, *POOLS.relations) for word in relation.split()}
VOCABULARY = Vocabulary.build([], extra_words=[*NOUNS, *ADJECTIVES, *RELATION_WORDS, *POOLS.nouns, *POOLS.adjectives])

objects = st.builds(
    lambda noun, adjectives: SceneObject(
        noun, noun, noun, 0, 1, False, tuple(Attribute(a, a, "adjective") for a in adjectives)
    ),
    st.sampled_from(NOUNS),
    st.lists(st.sampled_from(ADJECTIVES), max_size=2),
)


@st.composite
def scene_graphs(draw: st.DrawFn) -> SceneGraph:
    things = draw(st.lists(objects, max_size=4))
    ends = st.integers(0, max(len(things) - 1, 0))
    relation = st.builds(lambda s, o, words: Relation(s, o, words, words), ends, ends, st.sampled_from(RELATIONS))
    return SceneGraph(tuple(things), tuple(draw(st.lists(relation, max_size=3))) if things else ())


splits = st.lists(st.lists(scene_graphs(), min_size=1, max_size=3), min_size=1, max_size=4)


Draw = Callable[[np.ndarray, int], SimpleNamespace]


def sampler(images: list[list[SceneGraph]], **counts: Any) -> Draw:
    drawn = NegativeSampler(ComponentTable.build(images, VOCABULARY), POOLS, VOCABULARY, 5, **counts)
    return lambda captions, epoch: SimpleNamespace(**drawn.batch(captions, epoch))


def test_a_mapped_table_gives_the_same_negatives(tmp_path: Path) -> None:
    """The pools' relations get numbers behind those of the captions, in either."""
    components = ComponentTable.build(BUSY, VOCABULARY)
    components.save(tmp_path)
    built, mapped = (
        NegativeSampler(table, POOLS, VOCABULARY, 5).batch(np.arange(len(components)), 1)
        for table in (components, ComponentTable.load(tmp_path, VOCABULARY))
    )
    for name, array in built.items():
        assert np.array_equal(array, mapped[name])


def words(ids: np.ndarray) -> list[tuple[str, ...]]:
    return [tuple(VOCABULARY.word(i) for i in row) for row in ids.reshape(-1, ids.shape[-1]).tolist()]


def triples(ids: np.ndarray) -> list[tuple[str, str, str]]:
    """Subjects, relations and objects, of rows that are filled up."""
    rows = [[VOCABULARY.word(i) for i in row if i != NO_WORD] for row in ids.reshape(-1, ids.shape[-1]).tolist()]
    return [(subject, " ".join(relation), thing) for subject, *relation, thing in rows]


@given(splits, st.integers(0, 3))
def test_a_negative_differs_in_its_word_and_is_true_of_no_caption(images: list[list[SceneGraph]], epoch: int) -> None:
    captions = [(image, one) for image in images for one in image]
    batch = sampler(images)(np.arange(len(captions)), epoch)
    for row, (image, one) in enumerate(captions):
        objects_of_row = batch.object_owner_O == row
        assert words(batch.objects_O[objects_of_row, None]) == [(noun,) for noun in nouns_of(one)]
        nouns = {noun for other in image for noun in nouns_of(other)}
        drawn = words(batch.object_negatives_ON[objects_of_row][:, :, None])
        assert len(drawn) == 16 * len(nouns_of(one))
        assert {noun for (noun,) in drawn} <= set(POOLS.nouns) - nouns

        pairs_of_row = batch.pair_owner_A == row
        true_pairs = {pair for other in image for pair in pairs_of(other)}
        assert words(batch.pairs_A2[pairs_of_row]) == pairs_of(one)
        for pair, negatives in zip(pairs_of(one), batch.pair_negatives_AN2[pairs_of_row], strict=True):
            assert not set(words(negatives)) & true_pairs
            assert changed(pair, words(negatives)) == [0] * 8 + [1] * 8

        triples_of_row = batch.triple_owner_T == row
        true_triples = {triple for other in image for triple in triples_of(other)}
        assert triples(batch.triples_TL[triples_of_row]) == triples_of(one)
        for triple, negatives in zip(triples_of(one), batch.triple_negatives_TNL[triples_of_row], strict=True):
            assert not set(triples(negatives)) & true_triples
            assert changed(triple, triples(negatives)) == [0] * 2 + [1] * 4 + [2] * 2


@given(splits)
def test_numbers_tell_which_triples_are_true_of_an_image(images: list[list[SceneGraph]]) -> None:
    captions = [(image, one) for image in images for one in image]
    batch = sampler(images)(np.arange(len(captions)), 0)
    numbers = dict(zip(triples(batch.triples_TL), batch.triple_numbers_T.tolist(), strict=True))
    assert len(set(numbers.values())) == len(numbers)
    assert batch.triple_numbers_T.tolist() == [numbers[triple] for triple in triples(batch.triples_TL)]
    for row, (image, _) in enumerate(captions):
        true = {numbers[triple] for other in image for triple in triples_of(other)}
        assert set(batch.true_triples_CX[row].tolist()) - {-1} == true


def changed(component: tuple[str, ...], negatives: list[tuple[str, ...]]) -> list[int]:
    """The one column in which each negative differs, drawn from that column's pool."""
    pools = (POOLS.adjectives, POOLS.nouns) if len(component) == 2 else (POOLS.nouns, POOLS.relations, POOLS.nouns)
    columns = []
    for negative in negatives:
        (column,) = (i for i, (a, b) in enumerate(zip(component, negative, strict=True)) if a != b)
        assert negative[column] in pools[column]
        columns.append(column)
    return columns


ARRAYS = [
    *("objects_O", "object_negatives_ON", "pairs_A2", "pair_negatives_AN2", "triples_TL", "triple_negatives_TNL"),
    *("triple_numbers_T", "true_triples_CX"),
]


@given(splits, st.randoms(use_true_random=False))
def test_a_caption_gets_the_same_negatives_in_every_batch(images: list[list[SceneGraph]], random: Random) -> None:
    drawn = sampler(images)
    captions = list(range(sum(map(len, images)))) * 2
    random.shuffle(captions)
    whole = drawn(np.array(captions), 2)
    alone = [drawn(np.array([caption]), 2) for caption in captions]
    for name in ARRAYS:
        parts = [getattr(one, name) for one in alone]
        if name.endswith("L"):  # as wide as the longest triple of the batch
            assert triples(getattr(whole, name)) == list(itertools.chain(*map(triples, parts)))
        else:
            np.testing.assert_array_equal(getattr(whole, name), np.concatenate(parts))
    for name in ("object_owner_O", "pair_owner_A", "triple_owner_T"):
        sizes = [len(getattr(one, name)) for one in alone]
        assert getattr(whole, name).tolist() == list(itertools.chain(*([i] * n for i, n in enumerate(sizes))))


BUSY = [
    [graph("[a {a0} n0] (r0|r0) [a {a1} n1]"), graph("[a {a2} n0] (r1 of|r1 of) [a n1]")],
    [graph("[a {a1} n0] (r2|r2) [a n1] (r2|r2) [a {a0} n2]")],  # what is true of another image may be drawn
]


def test_all_words_that_may_be_drawn_are_as_likely() -> None:
    drawn = sampler(BUSY)
    batches = [drawn(np.array([0]), epoch) for epoch in range(1500)]
    read = [triples(b.triple_negatives_TNL[0]) for b in batches]
    for drawn_words, expected in [
        ([[n for (n,) in words(b.object_negatives_ON[0, :, None])] for b in batches], {"n2", "n3", "n4", "spare noun"}),
        # "a2 n0" is true of the image, by the other caption.
        ([[a for a, _ in words(b.pair_negatives_AN2[0, :8])] for b in batches], {"a1", "spare adjective"}),
        (
            [[n for _, n in words(b.pair_negatives_AN2[0, 8:])] for b in batches],
            {"n1", "n2", "n3", "n4", "spare noun"},
        ),
        ([[relation for _, relation, _ in each[2:6]] for each in read], {"r2", "spare in relation"}),
        ([[thing for *_, thing in each[6:]] for each in read], {"n0", "n2", "n3", "n4", "spare noun"}),
    ]:
        ids = np.array([[sorted(expected).index(word) for word in each] for each in drawn_words])
        counts = Counter(word for each in drawn_words for word in each)
        assert set(counts) == expected
        mean = ids.size / len(expected)
        assert all(abs(count - mean) < 5 * np.sqrt(mean) for count in counts.values())
        # Negatives of one component are not copies of each other.
        assert abs(np.corrcoef(ids[:, 0], ids[:, 1])[0, 1]) < 0.12


SEEN = [
    [graph("[a {brown} dog] (on|on) [a {big} ball]"), graph("[a {small} dog] (stand on|stand on) [a ball]")],
    [graph("[a {black} dog] (by|by) [a {brown} house]"), graph("[a {black} dog] (by|by) [a {brown} ball]")],
    [graph("[a {white} man] (on|on) [a {gray} house]"), graph("[a {tall} man] (by|by) [a person]")],
]
SEEN_POOLS = Pools(
    ("animal", "ball", "dog", "house", "man", "person"),
    ("big", "black", "brown", "gray", "grey", "large", "small", "tall", "white"),
    ("by", "on", "stand on"),
)


def test_negatives_from_captions_are_as_likely_as_what_is_true() -> None:
    """For a brown dog and its ball, counted by hand; a share of one more goes to the words by their frequency."""
    extra = [*SEEN_POOLS.nouns, *SEEN_POOLS.adjectives, "stand", "on", "by"]
    vocabulary = Vocabulary.build([], extra_words=extra)
    drawn = NegativeSampler(ComponentTable.build(SEEN, vocabulary), SEEN_POOLS, vocabulary, 5, source="captions")
    pairs = [pair for of_image in SEEN for one in of_image for pair in pairs_of(one)]
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("noun", "adjective", "owner", "relation", "place")}
    for epoch in range(3000):
        batch = SimpleNamespace(**drawn.batch(np.array([0]), epoch))
        read = [[vocabulary.word(i) for i in row if i != NO_WORD] for row in batch.triple_negatives_TNL[0].tolist()]
        counts["noun"].update(vocabulary.word(i) for i in batch.object_negatives_ON[0].tolist())
        counts["adjective"].update(vocabulary.word(i) for i in batch.pair_negatives_AN2[0, :8, 0].tolist())
        counts["owner"].update(vocabulary.word(i) for i in batch.pair_negatives_AN2[0, 8:, 1].tolist())
        counts["relation"].update(" ".join(row[1:-1]) for row in read[2:6])
        counts["place"].update(row[-1] for row in read[6:])

    def weights(pool: tuple[str, ...], words: list[str], every: list[str], left_out: set[str]) -> dict[str, float]:
        """Uses of the pool's words, and a share of one more by one more than all their uses."""
        more = {word: every.count(word) + 1 for word in pool}
        return {w: words.count(w) + more[w] / sum(more.values()) for w in pool if w not in left_out}

    graphs = [one for of_image in SEEN for one in of_image]
    nouns = [noun for one in graphs for noun in nouns_of(one)]
    found = [triple for one in graphs for triple in triples_of(one)]
    relations, ends = ([triple[column] for triple in found] for column in (1, 2))
    of_dog, with_brown = [a for a, n in pairs if n == "dog"], [n for a, n in pairs if a == "brown"]
    # Captions know "dog" as a kind of "animal", and WordNet as one of "person" too. "stand on" has the words of "on".
    not_dog, colours = {"dog", "animal", "person"}, {"black", "gray", "grey", "white"}
    no_colour = set(SEEN_POOLS.adjectives) - colours
    expected = {
        "noun": weights(SEEN_POOLS.nouns, nouns, nouns, not_dog | {"ball"}),
        "adjective": weights(SEEN_POOLS.adjectives, of_dog, [a for a, _ in pairs], no_colour),
        "owner": weights(SEEN_POOLS.nouns, with_brown, [n for _, n in pairs], not_dog),
        "relation": weights(SEEN_POOLS.relations, relations, relations, {"on", "stand on"}),
        "place": weights(SEEN_POOLS.nouns, ends, ends, {"ball"}),
    }
    for name, likely in expected.items():
        total, size = sum(likely.values()), counts[name].total()
        assert set(counts[name]) == set(likely)
        for word, weight in likely.items():
            share = weight / total
            assert abs(counts[name][word] - size * share) < 5 * np.sqrt(size * share) + 1, (name, word)


def test_an_adjective_whose_kind_has_no_other_is_exchanged_for_any() -> None:
    vocabulary = Vocabulary.build([], extra_words=["dog", "cat", "brown", "wet"])
    components = ComponentTable.build([[graph("[a {brown} dog]")]], vocabulary)
    pools = Pools(("cat", "dog"), ("brown", "wet"), ("wet",))
    batch = NegativeSampler(components, pools, vocabulary, 0, source="captions").batch(np.array([0]), 0)
    assert {vocabulary.word(i) for i in batch["pair_negatives_AN2"][0, :8, 0].tolist()} == {"wet"}


def test_counts_may_differ_and_vanish() -> None:
    batch = sampler(BUSY, objects=3, pairs=(0, 2), triples=(0, 0, 1))(np.array([0, 1]), 0)
    assert batch.object_negatives_ON.shape == (4, 3)
    assert batch.pair_negatives_AN2.shape == (3, 2, 2)
    assert changed(("a0", "n0"), words(batch.pair_negatives_AN2[0])) == [1, 1]
    assert batch.triple_negatives_TNL.shape == (2, 1, 4)


def test_captions_without_components() -> None:
    batch = sampler([[SceneGraph()]])(np.array([0, 0]), 0)
    assert batch.object_negatives_ON.shape == (0, 16)
    assert batch.pair_negatives_AN2.shape == (0, 16, 2)
    assert batch.triple_negatives_TNL.shape == (0, 8, 3)
    assert batch.objects_O.dtype == batch.triple_negatives_TNL.dtype == np.int32
    assert sampler(BUSY)(np.array([], dtype=np.int64), 0).triple_negatives_TNL.shape == (0, 8, 3)


def test_a_pool_with_nothing_to_draw_is_refused_at_once() -> None:
    components = ComponentTable.build(BUSY, VOCABULARY)
    with pytest.raises(NegativesError, match=r"all 2 nouns .* in 7 components"):
        NegativeSampler(components, Pools(("n0", "n1"), ("a0", "a3"), ("r2",)), VOCABULARY, 0)
    with pytest.raises(NegativesError, match="all 1 relations of the pool"):
        NegativeSampler(components, Pools(("n0", "n1", "n2", "n3"), ("a0", "a3"), ("r0",)), VOCABULARY, 0)


def test_a_pool_that_the_vocabulary_lacks_is_refused() -> None:
    with pytest.raises(NegativesError, match="none of the pool's adjectives"):
        NegativeSampler(
            ComponentTable.build(BUSY, VOCABULARY),
            Pools(("n3",), ("unheard",), ("r2",)),
            VOCABULARY,
            0,
        )
