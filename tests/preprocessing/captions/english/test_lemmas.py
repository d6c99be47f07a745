"""Lemmas by exceptions, by known words and by rules."""

from __future__ import annotations

import pytest
import spacy
from spacy.language import Language

from preprocessing.captions.english.treebank import Word, lemma_tables, to_doc


def word(form: str, lemma: str, upos: str, xpos: str) -> Word:
    return Word(form, lemma, upos, xpos, -1, "root")


KNOWN = [
    word("men", "man", "NOUN", "NNS"),
    word("skating", "skate", "VERB", "VBG"),
    word("dress", "dress", "NOUN", "NN"),
    word("a", "a", "DET", "DT"),
    word("an", "a", "DET", "DT"),
    word("better", "good", "ADJ", "JJR"),
]
# A lemma seen once may be a slip: "trying" is no form of "trye".
ONCE = [word("tryed", "trye", "VERB", "VBN"), word("trying", "try", "VERB", "VBG")]


@pytest.fixture(scope="module")
def nlp() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("lemmatizer", config={"mode": "rule"}).initialize(lookups=lemma_tables([KNOWN, KNOWN, ONCE]))
    return nlp


@pytest.mark.parametrize(
    ("form", "upos", "xpos", "lemma"),
    [
        ("Men", "NOUN", "NNS", "man"),
        ("Skates", "VERB", "VBZ", "skate"),
        ("dresses", "NOUN", "NNS", "dress"),
        ("A", "DET", "DT", "a"),
        ("puppies", "NOUN", "NNS", "puppy"),
        ("hopping", "VERB", "VBG", "hop"),
        ("trying", "VERB", "VBG", "try"),
        ("Boston", "PROPN", "NNP", "Boston"),
    ],
)
def test_lemmas(nlp: Language, form: str, upos: str, xpos: str, lemma: str) -> None:
    doc = to_doc(nlp.vocab, [[word(form, "", upos, xpos)]])
    assert nlp.get_pipe("lemmatizer")(doc)[0].lemma_ == lemma
