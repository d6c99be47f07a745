"""Plurals, and forms of verbs."""

import pytest

from preprocessing.captions.inflection import inflect


@pytest.mark.parametrize(
    ("verb", "third", "gerund", "participle"),
    [
        ("run", "runs", "running", "run"),
        ("ride", "rides", "riding", "ridden"),
        ("carry", "carries", "carrying", "carried"),
        ("catch", "catches", "catching", "caught"),
        ("lie", "lies", "lying", "lain"),
        ("canoe", "canoes", "canoeing", "canoed"),
        ("play", "plays", "playing", "played"),
        ("hop", "hops", "hopping", "hopped"),
        ("gather", "gathers", "gathering", "gathered"),
        ("look", "looks", "looking", "looked"),
        ("have", "has", "having", "had"),
        ("go", "goes", "going", "gone"),
        ("be", "is", "being", "been"),
        ("picnic", "picnics", "picnicking", "picnicked"),
        ("ski", "skis", "skiing", "skied"),
    ],
)
def test_verbs(verb: str, third: str, gerund: str, participle: str) -> None:
    assert (inflect(verb, "VBZ"), inflect(verb, "VBG"), inflect(verb, "VBN")) == (third, gerund, participle)


@pytest.mark.parametrize(
    ("noun", "plural"), [("dog", "dogs"), ("woman", "women"), ("baby", "babies"), ("boy", "boys"), ("bench", "benches"),
                         ("potato", "potatoes"), ("leaf", "leaves"), ("sheep", "sheep"),
                         ("person", "people"), ("fish", "fish"), ("hockey", "hockey"), ("passerby", "passersby")],
)  # fmt: skip
def test_plurals(noun: str, plural: str) -> None:
    assert inflect(noun, "NNS") == plural
