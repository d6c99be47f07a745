"""Sentences made for training: phrases cut out of trees, captions from templates, and that both are trees."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

from preprocessing.captions.english.templates import write_captions
from preprocessing.captions.english.train import compose
from preprocessing.captions.english.treebank import Word, lower_cased, noun_phrases, stop_apart, without_stop


def sentence(text: str) -> list[Word]:
    """From words written as form/UPOS/XPOS/head/label, heads counted from 1."""
    parts = [word.split("/") for word in text.split()]
    return [Word(form, form.lower(), upos, xpos, int(head) - 1, label) for form, upos, xpos, head, label in parts]


SEEN = sentence(
    "I/PRON/PRP/2/nsubj saw/VERB/VBD/0/root a/DET/DT/4/det boy/NOUN/NN/2/obj wearing/VERB/VBG/4/acl "
    "a/DET/DT/7/det hat/NOUN/NN/5/obj yesterday/ADV/RB/2/advmod ././././2/punct".replace("././././2", "./PUNCT/./2")
)


def assert_tree(words: Sequence[Word]) -> None:
    """One root, no cycle, no crossing arcs."""
    assert [word.relation for word in words if word.head < 0] == ["root"]
    for i, word in enumerate(words):
        steps, j = 0, i
        while j >= 0:
            j, steps = words[j].head, steps + 1
            assert steps <= len(words)
        for j in range(min(i, word.head) + 1, max(i, word.head)) if word.head >= 0 else ():
            assert min(i, word.head) <= words[j].head <= max(i, word.head)


def test_noun_phrases() -> None:
    (phrase,) = noun_phrases(SEEN)
    assert phrase == sentence(
        "a/DET/DT/2/det boy/NOUN/NN/0/root wearing/VERB/VBG/2/acl a/DET/DT/5/det hat/NOUN/NN/3/obj ./PUNCT/./2/punct"
    )


def test_casing_and_stops() -> None:
    glued = [*SEEN[:-2], Word("yesterday", "yesterday", "ADV", "RB", 1, "advmod", space_after=False), SEEN[-1]]
    assert stop_apart(glued) == SEEN
    assert without_stop(SEEN) == SEEN[:-1]
    assert without_stop(SEEN[:-1]) == SEEN[:-1]
    assert [word.form for word in lower_cased(SEEN)] == [word.form.lower() for word in SEEN]


def test_captions_are_trees_and_repeat_with_the_seed() -> None:
    captions = list(write_captions(1000, Random(3)))
    for caption in captions:
        assert_tree(caption)
        assert all(word.form and word.lemma and word.upos and word.xpos for word in caption)
    assert captions[:200] == list(write_captions(200, Random(3)))
    assert captions[:200] != list(write_captions(200, Random(4)))


def test_the_templates_give_the_recorded_captions() -> None:
    captions = repr(list(write_captions(200, Random(0))))
    assert hashlib.sha256(captions.encode()).hexdigest().startswith("7f5d56d34dff3573")


def test_captions_show_what_the_treebank_lacks() -> None:
    captions = list(write_captions(2000, Random(0)))
    seen = {(word.form, word.xpos, word.relation) for caption in captions for word in caption}
    assert {("front", "NN", "obl"), ("next", "RB", "advmod"), ("There", "EX", "expl"), ("waves", "VBZ", "root")} <= seen
    nominal = sum(next(word for word in caption if word.head < 0).upos == "NOUN" for caption in captions)
    assert 0.25 < nominal / len(captions) < 0.6


def test_composition() -> None:
    documents = compose([SEEN] * 50, seed=0, templates=0)
    assert documents == compose([SEEN] * 50, seed=0, templates=0)
    assert sum(document.count(SEEN) for document in documents) >= 50
    assert {1, 2, 3} == {len(document) for document in documents if SEEN in document}
    assert sum(document[0][0].form == "a" for document in documents) == 50
    for document in documents:
        for part in document:
            assert_tree(part)
