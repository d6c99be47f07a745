"""Captions are cut as the published vocabularies expect."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nltk.tokenize.destructive import NLTKWordTokenizer

from preprocessing.captions.vocabulary import tokenize


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


PIECES = [
    "a",
    "dog",
    "t-shirt",
    "-",
    "--",
    ",",
    ".",
    " ",
    "'",
    "7",
    "1,000",
    "cannot",
    "wanna-be",
    "gonna",
    ":",
    "é",
    "\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join) | st.text(max_size=20))
@example("a dog .")
@example("a dog.")
@example(" a , dog,. ")
@example("a . dog .")
@example("cannot")
@example(" ''")
def test_the_words_are_those_of_nltk(text: str) -> None:
    assert tokenize(text) == NLTKWordTokenizer().tokenize(text.lower())


def test_real_captions_are_cut_as_by_nltk(vse_data: Path) -> None:
    lines = (vse_data / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()[::7]
    reference = NLTKWordTokenizer()
    for line in lines:
        text = line.partition("\t")[2]
        assert tokenize(text) == reference.tokenize(text.lower())
