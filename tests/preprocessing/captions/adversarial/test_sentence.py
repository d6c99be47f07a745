"""Places in a caption, and changes of its words."""

import pytest

from preprocessing.captions.adversarial.sentence import (
    TokenizedCaption,
    find_words,
    frame_of,
    noun_span,
    relation_span,
    rewrite,
)
from preprocessing.captions.graph import SceneGraph
from tests.preprocessing.captions.markup import caption


def test_a_caption_is_its_tokens() -> None:
    one = TokenizedCaption("image", "image#0", ("A ", "man", "'s ", "T", "-", "shirt", "."), SceneGraph())
    assert one.text == "A man's T-shirt."
    assert one.tokens == ("a", "man", "'s", "t", "-", "shirt", ".")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([(1, 2, ["apple"])], "An apple and an owl on a hill ."),
        ([(4, 5, ["red", "dog"])], "A dog and a red dog on a hill ."),
        ([(4, 5, ["tall", "owl"])], "A dog and a tall owl on a hill ."),
        ([(0, 2, ["an", "owl"]), (3, 5, ["a", "dog"])], "An owl and a dog on a hill ."),
        ([(3, 4, ["two"]), (4, 5, ["owls"])], "A dog and two owls on a hill ."),
        ([(0, 1, ["a"]), (1, 2, ["egg"])], "An egg and an owl on a hill ."),
        ([(0, 1, ["an"])], "A dog and an owl on a hill ."),
        ([(7, 8, ["hill", "with", "a", "egg"])], "A dog and an owl on a hill with an egg ."),
        ([(0, 1, ["two"]), (1, 2, ["dogs"])], "Two dogs and an owl on a hill ."),
    ],
)
def test_articles_and_capitals_follow_a_change(edits: list[tuple[int, int, list[str]]], expected: str) -> None:
    tokens = tuple(f"{word} " for word in ("A", "dog", "and", "an", "owl", "on", "a", "hill"))
    assert rewrite(TokenizedCaption("image", "image#0", (*tokens, "."), SceneGraph()), edits) == expected


def test_what_is_not_changed_stays_as_written() -> None:
    one = TokenizedCaption(
        "image", "image#0", ("a ", "OWL ", "(", "wet", ") ", "sees ", "a ", "Dog", "!"), SceneGraph()
    )
    assert rewrite(one, [(7, 8, ["cat"])]) == "a OWL (wet) sees a Cat!"
    assert rewrite(one, [(3, 4, ["old", "wet"])]) == "a OWL (old wet) sees a Dog!"
    assert rewrite(one, [(3, 4, ["wet", "with", "a", "hat"])]) == "a OWL (wet with a hat) sees a Dog!"


@pytest.mark.parametrize(
    ("marked", "span"),
    [
        ("[a {red} tennis_racket] lies", (2, 4)),
        ("[a {red} racket] lies", (2, 3)),
        ("[racket] lies", (0, 1)),
        ("[a {red} t - shirt] lies", (2, 5)),  # one word as written
        ("[a tank - top] lies", (1, 4)),
        ("[a hot dog] - like", (2, 5)),
        ("black - and - [a shirt]", (5, 6)),
    ],
)
def test_a_noun_with_its_compounds(marked: str, span: tuple[int, int]) -> None:
    one = caption(marked)
    assert noun_span(one, one.graph.objects[0]) == span


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
    turned = passive.graph.relations[0]._replace(subject=1, object=0)
    assert relation_span(passive, turned) == (2, 4)
    apart = passive.graph.relations[0]._replace(words="chased dog")
    assert relation_span(passive, apart) is None


def test_tokens_that_are_not_the_graphs_are_refused() -> None:
    graph: SceneGraph = caption("[a dog] runs").graph
    with pytest.raises(ValueError, match="'dog' is not among its tokens 0 to 2"):
        TokenizedCaption("image", "image#0", ("A ", "cat ", "runs"), graph)
