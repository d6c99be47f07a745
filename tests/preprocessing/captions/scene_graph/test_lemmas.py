"""Lemmas that are remembered are those that spaCy's lemmatizer gives."""

from __future__ import annotations

import pytest
from spacy.language import Language

from preprocessing.captions.pipeline import load_pipeline
from preprocessing.captions.scene_graph.tree import Lemmas, read_tree

_CAPTIONS = (
    "Two dogs are running through the snow and they're barking .",
    "A man rides his bike , a woman is riding hers .",
    "The leaves leaves behind are left on the saws he saws with .",
    "Children's faces painted by better painters",
)


@pytest.fixture(scope="module")
def nlp() -> Language:
    return load_pipeline()


def test_same_as_the_lemmatizer_twice_over(nlp: Language) -> None:
    lemmas = Lemmas(nlp)
    for _ in range(2):  # computed, then remembered
        for text in _CAPTIONS:
            full = [token.lemma_.lower() for token in nlp(text)]
            (doc,) = nlp.pipe([text], disable=["lemmatizer"])
            assert read_tree(doc, lemmas).lemmas == full


def test_another_components_lemmas_stand(nlp: Language) -> None:
    lemmas = Lemmas(nlp)
    (doc,) = nlp.pipe(["Two dogs"], disable=["lemmatizer"])
    doc[1].lemma_ = "hound"
    assert read_tree(doc, lemmas).lemmas == ["two", "hound"]
