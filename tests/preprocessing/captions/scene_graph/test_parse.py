"""A stream of captions, good and bad, gives a stream of graphs in the same order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph.parse import MAX_CHARACTERS, MAX_TOKENS, is_foreign, parse_captions
from tests.preprocessing.captions.scene_graph.parses import objects


def _annotate(doc: Doc) -> Doc:
    """A stand-in for a parser: every word of more than two letters is a noun, and the first one the root."""
    for token in doc:
        noun = token.is_alpha and len(token) > 2
        token.pos_ = "NOUN" if noun else "PUNCT" if token.is_punct else "DET"
        token.lemma_ = token.text
        token.head = doc[0]
        token.dep_ = "ROOT" if token.i == 0 else "conj" if noun else "dep"
    return doc


Language.component("annotate_all_nouns", func=_annotate)


@pytest.fixture(scope="module")
def nlp() -> Language:
    pipeline = spacy.blank("en")
    pipeline.add_pipe("annotate_all_nouns")
    return pipeline


@pytest.mark.parametrize(
    ("text", "problem", "things"),
    [
        ("dog", None, "dog"),
        ("dog sees cat. man sees ox.", None, "dog, sees, cat, man, sees"),
        ("  dog \t\n cat  ", None, "dog, cat"),
        ("dog\u200b cat\u00ad", None, "dog, cat"),
        ("", "empty", ""),
        (" \t\n\u3000", "empty", ""),
        ("\u200b", "empty", ""),
        (" " * (MAX_CHARACTERS + 1), "empty", ""),
        ("😀 🎉", "no words", ""),
        ("?! ...", "no words", ""),
        ("dog\x00 \x1bcat", "control characters", "dog, cat"),
        ("\x00\x01", "control characters", ""),
        ("dog \ud800 cat", "control characters", "dog, cat"),
        ("ein hund und eine katze", "not English", ""),
        ("ein hund\x00 und eine katze", "not English", ""),
        ("<b>dog</b> sees <a href='cat'>cow</a>&nbsp;&amp; man<br/>", None, "dog, sees, cow, man"),
        ("dog < cat > cow", None, "dog, cat, cow"),
        ("is it", "no objects", ""),
        ("12", "no objects", ""),
    ],
)
def test_each_problem_is_named(nlp: Language, text: str, problem: str | None, things: str) -> None:
    (parsed,) = parse_captions(nlp, [text])
    assert parsed.problem == problem
    assert objects(parsed.graph) == things


@pytest.mark.parametrize("excess", [0, 1, 1744])
def test_a_long_caption_is_read_up_to_a_limit(nlp: Language, excess: int) -> None:
    (parsed,) = parse_captions(nlp, [" ".join(["dog"] * (MAX_TOKENS + excess))])
    assert len(parsed.graph.objects) == MAX_TOKENS
    assert parsed.problem == ("too long" if excess else None)


def test_an_endless_word_is_cut(nlp: Language) -> None:
    (parsed,) = parse_captions(nlp, ["cat " + "x" * (nlp.max_length + 1)])
    assert parsed.problem == "too long"
    assert parsed.graph.objects[0].word == "cat"
    assert len(parsed.graph.objects[1].word) == MAX_CHARACTERS - len("cat ")


def test_the_order_is_kept_and_captions_are_read_as_needed(nlp: Language) -> None:
    taken = 0

    def captions() -> Iterator[str]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield "" if number % 3 == 0 else f"dog cat{'s' * number}"

    stream = parse_captions(nlp, captions(), batch_size=10)
    first = [next(stream) for _ in range(20)]
    assert taken < 100
    for number, parsed in enumerate(first):
        assert parsed.problem == ("empty" if number % 3 == 0 else None)
        assert objects(parsed.graph) == ("" if number % 3 == 0 else f"dog, cat{'s' * number}")
    assert len(list(stream)) == 980


@given(st.lists(st.text(st.characters(), max_size=30), max_size=5))
def test_no_caption_raises(nlp: Language, texts: list[str]) -> None:
    results = list(parse_captions(nlp, texts))
    assert len(results) == len(texts)
    for parsed in results:
        assert parsed.graph == SceneGraph() or parsed.graph.objects
        assert parsed.problem or parsed.graph.objects


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("A dog runs over the grass", False),
        ("red car", False),
        ("Man in la la land", False),
        ("a café in de Gaulle street with an art déco façade", False),
        ("Ein Hund läuft über die Wiese und spielt mit dem Ball", True),
        ("Un homme avec une guitare dans la rue", True),
        ("Un perro corre por el campo", True),
        ("一只狗在草地上", True),
        ("собака бежит", True),
    ],
)
def test_languages(text: str, foreign: bool) -> None:
    assert is_foreign(text) == foreign
