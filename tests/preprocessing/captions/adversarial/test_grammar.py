"""Plurals, articles, verbs and numbers."""

import pytest

from preprocessing.captions.adversarial.grammar import (
    NUMBER_WORDS,
    article,
    is_plural,
    number_value,
    plural,
)


@pytest.mark.parametrize(
    ("following", "expected"),
    [
        ("dog", "a"), ("apple", "an"), ("umbrella", "an"), ("unicycle", "a"), ("uniform", "a"), ("unusual", "an"),
        ("unimpressed", "an"), ("used", "a"), ("upside", "an"), ("european", "a"), ("one-armed", "a"),
        ("onlooker", "an"), ("hour", "an"), ("house", "a"), ("horse", "a"), ("honest", "an"), ("suv", "an"),
        ("atv", "an"), ("x-ray", "an"),
        ("8", "an"), ("18", "an"), ("80", "an"), ("180", "a"), ("1", "a"), ("eighteen", "an"), ("yellow", "a"),
    ],
)  # fmt: skip
def test_article(following: str, expected: str) -> None:
    assert article(following) == expected


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a", 1),
        ("two", 2),
        ("eighty", 80),
        ("12", 12),
        ("twenty-one", 21),
        ("twenty-a", None),
        ("dog", None),
        ("²", None),
    ],
)
def test_number_value(word: str, value: int | None) -> None:
    assert number_value(word) == value


def test_there_are_28_number_words() -> None:
    assert len(NUMBER_WORDS) == 28
    assert sorted(set(NUMBER_WORDS.values())) == [*range(1, 21), 30, 40, 50, 60, 70, 80]


@pytest.mark.parametrize(
    ("word", "lemma", "expected"),
    [("dogs", "dog", True), ("dog", "dog", False), ("people", "people", True), ("pants", "pants", True)],
)
def test_is_plural(word: str, lemma: str, expected: bool) -> None:
    assert is_plural(word, lemma) is expected


def test_plural() -> None:
    assert [plural(noun) for noun in ("dog", "pants", "t-shirt")] == ["dogs", "pants", "t-shirts"]
