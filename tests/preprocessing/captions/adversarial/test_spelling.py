"""Adversarial captions are spelled as the true ones are: only the changed words tell them apart."""

import difflib
from typing import get_args

import pytest

from preprocessing.captions.adversarial.files import Adversarial
from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.adversarial.univse import UniVSEAttack, univse_attack
from preprocessing.captions.adversarial.vse_c import VSECAttack, vse_c_attack
from preprocessing.captions.pipeline import load_pipeline
from preprocessing.captions.scene_graph.parse import parse_captions
from preprocessing.captions.vocabulary import tokenize
from tests.preprocessing.captions.adversarial.training import lexicon

LEXICON = lexicon()
TEXTS = [
    "A boy in a red T-shirt sits on the man's shoulders , smiling .",
    "Two long-haired dogs aren't running on a well-kept lawn.",
    'The sign reads "No dogs" (in black-and-white) near a table.',
    "Santa's reindeer : it is a half-eaten ice-cream cone; isn't it?",
]


@pytest.fixture(scope="module")
def captions() -> list[TokenizedCaption]:
    parsed = parse_captions(load_pipeline(), TEXTS)
    return [TokenizedCaption("image", str(i), tuple(one.tokens), one.graph) for i, one in enumerate(parsed)]


def attacks(captions: list[TokenizedCaption]) -> list[Adversarial]:
    univse = [entry for kind in get_args(UniVSEAttack) for entry in univse_attack([captions], kind, LEXICON, 0, 40)]
    return univse + [entry for kind in get_args(VSECAttack) for entry in vse_c_attack([captions], kind, LEXICON, 0, 40)]


def test_words_that_are_not_changed_are_cut_as_in_the_true_caption(captions: list[TokenizedCaption]) -> None:
    entries = attacks(captions)
    assert sum(len(entry.texts) for entry in entries) > 500
    for entry in entries:
        true = tokenize(entry.caption)
        for text in entry.texts:
            cut = tokenize(text)
            changes = [
                c for c in difflib.SequenceMatcher(None, true, cut, autojunk=False).get_opcodes() if c[0] != "equal"
            ]
            added = [word for _, _, _, first, last in changes for word in cut[first:last]]
            # Whole words come and go: none is cut into parts, joined, or left without its other half.
            assert all(
                word.isalpha() or not {word, word + "s", word.removesuffix("s")}.isdisjoint(true) for word in added
            )
            assert sum(last - first for _, first, last, _, _ in changes) <= 8, text
            spaced = entry.caption.count(" .") + entry.caption.count(" ,")
            assert text.count(" .") + text.count(" ,") == spaced, text
