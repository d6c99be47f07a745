"""Places in a caption, and changes of its words."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.captions.adversarial.sentence import (
    TokenizedCaption,
    apply,
    find_words,
    frame_of,
    join,
    noun_span,
    relation_span,
)
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.tokenize import tokenize
from tests.preprocessing.captions.markup import caption


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["a", "man", "'s", "dog", ",", "running", "."], "a man's dog, running."),
        (["it", "does", "n't", "'", "run", "'"], "it doesn't ' run '"),
        ([], ""),
    ],
)
def test_join(tokens: list[str], text: str) -> None:
    assert join(tokens) == text


@settings(deadline=None)  # the tokeniser takes seconds to import
@given(st.lists(st.sampled_from(["a", "dog's", ",", "runs", "t-shirt", "can't", ";"]), min_size=1, max_size=8))
def test_a_joined_caption_is_cut_into_the_same_words(words: list[str]) -> None:
    """So the words of a true caption and those of an adversarial one are the same to a text encoder."""
    tokens = tokenize(" ".join([*words, "."]))
    assert tokenize(join(tokens)) == tokens


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([(1, 2, ["apple"])], "an apple and an owl on a hill"),
        ([(4, 5, ["red", "dog"])], "a dog and a red dog on a hill"),
        ([(4, 4, ["old"])], "a dog and an old owl on a hill"),
        ([(4, 4, ["tall"])], "a dog and a tall owl on a hill"),
        ([(0, 2, ["an", "owl"]), (3, 5, ["a", "dog"])], "an owl and a dog on a hill"),
        ([(3, 4, ["two"]), (4, 5, ["owls"])], "a dog and two owls on a hill"),
        ([(0, 1, ["a"]), (1, 2, ["egg"])], "an egg and an owl on a hill"),
        ([(0, 1, ["an"])], "a dog and an owl on a hill"),
        ([(8, 8, ["with", "a", "egg"])], "a dog and an owl on a hill with an egg"),
        ([(3, 5, [])], "a dog and on a hill"),
    ],
)
def test_articles_follow_a_change(edits: list[tuple[int, int, list[str]]], expected: str) -> None:
    assert " ".join(apply(["a", "dog", "and", "an", "owl", "on", "a", "hill"], edits)) == expected


def test_articles_elsewhere_stay_as_written() -> None:
    assert apply(["a", "owl", "sees", "a", "dog"], [(4, 5, ["cat"])]) == ["a", "owl", "sees", "a", "cat"]


@pytest.mark.parametrize(
    ("marked", "span"),
    [
        ("[a {red} tennis_racket] lies", (2, 4)),
        ("[a {red} racket] lies", (2, 3)),
        ("[racket] lies", (0, 1)),
    ],
)
def test_a_noun_with_its_compounds(marked: str, span: tuple[int, int]) -> None:
    one = caption(marked)
    assert noun_span(one, one.graph.objects[0]) == span


def test_compounds_that_stand_apart_are_left_alone() -> None:
    one = caption("[a tennis_and_racket]")
    thing = dataclasses.replace(one.graph.objects[0], phrase="tennis racket")
    assert noun_span(one, thing) == (3, 4)


@pytest.mark.parametrize(
    ("marked", "frame"),
    [
        ("[a {big} dog] runs", "indefinite"),
        ("a [dog] runs", "indefinite"),  # the determiner may be outside of the phrase
        ("[one dog] runs", "indefinite"),
        ("[the dog] runs", "definite"),
        ("[the man 's dog] runs", "definite"),
        ("[his {two#} dogs|dog] run", "plural"),
        ("[people] run", "plural"),
        ("on [{wet} grass]", "bare"),
    ],
)
def test_frame(marked: str, frame: str) -> None:
    one = caption(marked)
    assert frame_of(one, one.graph.objects[0]) == frame


def test_words_are_found_where_they_stand_once() -> None:
    one = caption("a dog on a hill on a dog")
    assert find_words(one, "a dog", 0, 8) is None
    assert find_words(one, "a dog", 1, 8) == (6, 8)
    assert find_words(one, "a dog", 1, 7) is None
    assert find_words(one, "on a hill", 0, 8) == (2, 5)
    assert find_words(one, "", 0, 8) is None


def test_a_relation_is_looked_for_between_its_things_first() -> None:
    one = caption("on [a hill] and [a dog] (on|on) [a rug]")
    assert relation_span(one, one.graph.relations[0]) == (6, 7)
    passive = caption("[a ball] (chased by|chase) [a dog]")
    turned = dataclasses.replace(passive.graph.relations[0], subject=1, object=0)
    assert relation_span(passive, turned) == (2, 4)
    apart = dataclasses.replace(passive.graph.relations[0], words="chased dog")
    assert relation_span(passive, apart) is None


def test_tokens_that_are_not_the_graphs_are_refused() -> None:
    graph: SceneGraph = caption("[a dog] runs").graph
    with pytest.raises(ValueError, match="'dog' is not among its tokens 0 to 2"):
        TokenizedCaption("image", "image#0", ("A", "Dog", "runs"), graph)
