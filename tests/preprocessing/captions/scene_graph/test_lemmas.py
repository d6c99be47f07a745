"""Lemmas that are remembered are those that spaCy's lemmatizer gives."""

from __future__ import annotations

import pytest
import spacy
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
    assert lemmas.replaced == ["lemmatizer"]
    for _ in range(2):  # computed, then remembered
        for text in _CAPTIONS:
            full = [token.lemma_.lower() for token in nlp(text)]
            (doc,) = nlp.pipe([text], disable=lemmas.replaced)
            assert read_tree(doc, lemmas).lemmas == full


def test_another_components_lemmas_stand(nlp: Language) -> None:
    lemmas = Lemmas(nlp)
    (doc,) = nlp.pipe(["Two dogs"], disable=lemmas.replaced)
    doc[1].lemma_ = "hound"
    assert read_tree(doc, lemmas).lemmas == ["two", "hound"]


def test_a_lemmatizer_that_reads_the_sentence_stays() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("trainable_lemmatizer", name="lemmatizer")
    lemmas = Lemmas(nlp)
    assert lemmas.replaced == []
    doc = nlp.make_doc("two dogs")
    assert lemmas.complete(doc, [0, 7], [(1, 2, 3), (4, 5, 6)]) == [0, 7]
