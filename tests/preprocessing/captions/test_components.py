"""Components of captions: which words, how they are looked up, and what is left out."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.captions.components import (
    NO_WORD,
    ComponentTable,
    RelationForm,
    component_words,
    nouns_of,
    pairs_of,
    triples_of,
)
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.index import ShardError
from tests.preprocessing.captions.markup import graph

TWO_DOGS = graph("[{two#} {black} {smiling*} dogs|dog] (standing in front of|stand in front of) [a tennis_racket]")


def test_one_word_for_each_part() -> None:
    assert nouns_of(TWO_DOGS) == ["dog", "racket"]
    assert pairs_of(TWO_DOGS) == [("black", "dog"), ("smiling", "dog")]
    assert pairs_of(TWO_DOGS, True) == [("two", "dog"), ("black", "dog"), ("smiling", "dog")]
    assert pairs_of(TWO_DOGS, False) == pairs_of(TWO_DOGS)
    assert set(component_words([TWO_DOGS], 1, True)) - set(component_words([TWO_DOGS], 1)) == {"two"}
    assert triples_of(TWO_DOGS) == [("dog", "stand in front of", "racket")]


def test_a_component_counts_once_in_a_caption() -> None:
    twice = graph("[a {red} dog] (near|near) [a {red} dog] (near|near) [a dog]")
    assert nouns_of(twice) == ["dog"]
    assert pairs_of(twice) == [("red", "dog")]
    assert triples_of(twice) == [("dog", "near", "dog")]


def test_words_of_components_above_a_count() -> None:
    graphs = [TWO_DOGS, graph("[a {black} dog]"), graph("[a black]")]
    assert component_words(graphs, min_count=2) == ["black", "dog"]
    assert component_words(graphs, 1) == ["black", "dog", "front", "in", "of", "racket", "smiling", "stand"]
    joined = ["black", "dog", "racket", "smiling", "stand_in_front_of"]
    assert component_words(graphs, 1, relations="joined") == joined
    # "black" as an object and "black" as an attribute are counted apart.
    assert component_words(graphs, min_count=3) == []


FORMS: list[tuple[RelationForm, list[str]]] = [
    ("words", ["dog stand in front of racket", "dog on grass"]),
    ("joined", ["dog stand_in_front_of racket", "dog on grass"]),
]


@pytest.mark.parametrize(("form", "triples"), FORMS)
def test_ids_by_caption(form: RelationForm, triples: list[str]) -> None:
    images = [[TWO_DOGS, SceneGraph()], [graph("[a {black} dog] (on|on) [grass]")]]
    words_of_all = component_words([g for image in images for g in image], 1, relations=form)
    vocabulary = Vocabulary.build([], extra_words=words_of_all)
    components = ComponentTable.build(images, vocabulary, relations=form)

    def words(ids: np.ndarray) -> list[str]:
        return [" ".join(vocabulary.word(i) for i in row if i != NO_WORD) for row in ids.reshape(len(ids), -1).tolist()]

    assert len(components) == 3
    assert components.image_C.tolist() == [0, 0, 1]
    assert words(components.objects_O) == ["dog", "racket", "dog", "grass"]
    assert words(components.pairs_A2) == ["black dog", "smiling dog", "black dog"]
    assert words(components.select(np.arange(3))["triples_TL"]) == triples
    assert words(components.select(np.array([2]))["triples_TL"]) == triples[1:]
    # No wider than the longest of the batch.
    assert components.select(np.array([2]))["triples_TL"].shape == (1, 3)
    assert components.select(np.array([1]))["triples_TL"].shape == (0, 3)
    assert [components.relations.lemmas[n] for n in components.triples_T3[:, 1]] == ["stand in front of", "on"]
    assert components.object_starts.tolist() == [0, 2, 2, 4]
    assert components.pair_starts.tolist() == [0, 2, 2, 3]
    assert components.triple_starts.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(("form", "triples"), FORMS)
def test_a_table_is_mapped_as_it_was_built(form: RelationForm, triples: list[str], tmp_path: Path) -> None:
    images = [[TWO_DOGS, SceneGraph()], [graph("[a {black} dog] (on|on) [grass]")]]
    words = component_words([each for image in images for each in image], 1, relations=form)
    vocabulary = Vocabulary.build([], extra_words=words)
    built = ComponentTable.build(images, vocabulary, relations=form)
    built.save(tmp_path)
    mapped = ComponentTable.load(tmp_path, vocabulary, form)
    assert len(mapped) == 3
    assert mapped.image_C.tolist() == built.image_C.tolist()
    assert mapped.relations.lemmas == built.relations.lemmas
    for captions in (np.arange(3), np.array([2, 0])):
        for name, ids in built.select(captions).items():
            assert mapped.select(captions)[name].tolist() == ids.tolist()


@pytest.mark.parametrize("name", ["relations.json", "pairs_A2.npy"])
def test_a_damaged_table_is_named(name: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary.build(["dog"], min_count=1)
    ComponentTable.build([[TWO_DOGS]], vocabulary).save(tmp_path)
    (tmp_path / name).write_bytes(b"[")
    with pytest.raises(ShardError, match=f"{tmp_path}.*delete the folder"):
        ComponentTable.load(tmp_path, vocabulary)


def test_components_with_unknown_words_are_left_out() -> None:
    vocabulary = Vocabulary.build(["dog black on"], min_count=1)
    components = ComponentTable.build([[graph("[a {black} dog] (on|on) [the {black} grass]")]], vocabulary)
    assert len(components.objects_O) == 1
    assert len(components.pairs_A2) == 1
    assert components.triples_T3.shape == (0, 3)


def test_a_relation_in_words_is_known_where_its_words_are() -> None:
    """Joined, it has to be seen as often as a word to be known; in words, its words have."""
    known, unseen = (
        graph("[a dog] (stand next to|stand next to) [a cat]"),
        graph("[a dog] (sit next to|sit next to) [a cat]"),
    )
    captions = ["a dog can sit and a cat can stand"]
    for form, count in (("words", 1), ("joined", 0)):
        vocabulary = Vocabulary.build(captions, 1, component_words([known], 1, relations=form))
        assert len(ComponentTable.build([[unseen]], vocabulary, relations=form).triples_T3) == count


def test_no_captions_at_all() -> None:
    components = ComponentTable.build([], Vocabulary.build(["dog"], min_count=1))
    assert len(components) == 0
    assert components.pairs_A2.shape == (0, 2)
