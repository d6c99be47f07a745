"""The annotated components: their form, and that each of their words is in its caption."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from preprocessing.captions.pipeline import load_pipeline
from preprocessing.captions.scene_graph import parse_captions
from tests.preprocessing.captions.components_score import (
    DEVELOPMENT,
    GOLD,
    HELD_OUT,
    KINDS,
    read_captions,
    read_gold,
    score,
)

IRREGULAR = {"man": "men", "woman": "women", "child": "children", "tooth": "teeth", "foot": "feet", "lie": "laying"}
NAMES = ["first", "development", "held out"]
SIZES = dict(zip(KINDS, (1, 2, 3), strict=True))


def is_word_of(word: str, tokens: list[str]) -> bool:
    """Say whether a lemma's form is among the tokens: all letters but the last one at the start of a token."""
    return any(
        token in (word, IRREGULAR.get(word))
        or sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, token, strict=False)))
        >= max(2, len(word) - 1)
        for token in tokens
    )


@pytest.mark.parametrize(("path", "count"), [(GOLD, 60), (DEVELOPMENT, 75), (HELD_OUT, 75)], ids=NAMES)
def test_annotation_uses_the_words_of_its_captions(path: Path, count: int, vse_data: Path) -> None:
    captions, gold = read_captions(vse_data), read_gold(path)
    assert len(gold) == count
    strange = []
    for caption_id, kinds in gold.items():
        tokens = re.findall(r"[a-z][a-z-]*", captions[caption_id].lower())
        for kind, components in kinds.items():
            for words in components:
                assert len(words) == SIZES[kind], (caption_id, words)
                forms = [word.removeprefix("?").split("|") for word in words]
                strange += [
                    (caption_id, place)
                    for place in forms
                    if place != ["have"] and not any(all(is_word_of(w, tokens) for w in f.split()) for f in place)
                ]
    assert strange == []


@pytest.mark.parametrize("path", [GOLD, DEVELOPMENT, HELD_OUT], ids=NAMES)
def test_ends_of_attributes_and_relations_are_objects(path: Path) -> None:
    for caption_id, kinds in read_gold(path).items():
        objects = {form for (word,) in kinds["objects"] for form in word.removeprefix("?").split("|")}
        ends = [pair[1:] for pair in kinds["attributes"]] + [triple[::2] for triple in kinds["relations"]]
        for word in (word for pair in ends for word in pair):
            assert objects & set(word.removeprefix("?").split("|")), (caption_id, word)


def test_halves_are_a_random_draw(vse_data: Path) -> None:
    captions, rng = read_captions(vse_data), Random(19)
    names = set((vse_data / "flickr8k" / "Flickr_8k.trainImages.txt").read_text(encoding="utf-8").split())
    flickr = sorted(name for name in captions if name.split("#")[0] in names)
    coco = sorted(name for name in captions if "#" not in name)
    drawn = rng.sample(flickr, 100) + rng.sample(coco, 50)
    rng.shuffle(drawn)
    assert [*read_gold(DEVELOPMENT), *read_gold(HELD_OUT)] == drawn
    assert not read_gold(GOLD).keys() & set(drawn)


# A little below what was measured when the rules were last improved: of objects, attributes and relations.
FLOORS = {GOLD: (0.98, 0.94, 0.93), DEVELOPMENT: (0.98, 0.96, 0.90), HELD_OUT: (0.97, 0.94, 0.88)}


@pytest.mark.parametrize("path", [GOLD, DEVELOPMENT, HELD_OUT], ids=NAMES)
def test_quality_does_not_fall(path: Path, vse_data: Path) -> None:
    captions, ids = read_captions(vse_data), list(read_gold(path))
    parsed = parse_captions(load_pipeline(), [captions[caption_id] for caption_id in ids])
    scores = score(((caption_id, result.graph) for caption_id, result in zip(ids, parsed, strict=True)), path)
    low = {
        kind: (round(scores[kind].f1, 3), floor)
        for kind, floor in zip(KINDS, FLOORS[path], strict=True)
        if scores[kind].f1 < floor
    }
    assert not low
