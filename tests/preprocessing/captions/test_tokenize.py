"""Captions are cut as the published vocabularies expect."""

import pytest

from preprocessing.captions.tokenize import tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man's dog .", ["a", "man", "'s", "dog", "."]),
        ("Two dogs can't swim, it seems.", ["two", "dogs", "ca", "n't", "swim", ",", "it", "seems", "."]),
        ('A sign says "STOP".', ["a", "sign", "says", "``", "stop", "''", "."]),
        ("a t-shirt (red)", ["a", "t-shirt", "(", "red", ")"]),
        ("Ein Café in Köln", ["ein", "café", "in", "köln"]),
        ("He ran. She sat.", ["he", "ran.", "she", "sat", "."]),
        ("", []),
        (" \n", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert tokenize(text) == words
