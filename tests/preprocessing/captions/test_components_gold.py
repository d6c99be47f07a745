"""The annotated components: their form, and that each of their words is in its caption."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from tests.preprocessing.captions.components_score import (
    DEVELOPMENT,
    GOLD,
    KINDS,
    Score,
    Words,
    _compare,
    read_captions,
    read_gold,
)

IRREGULAR = {"man": "men", "woman": "women", "child": "children", "tooth": "teeth", "foot": "feet", "lie": "laying"}
SIZES = dict(zip(KINDS, (1, 2, 3), strict=True))


def is_word_of(word: str, tokens: list[str]) -> bool:
    """Say whether a lemma's form is among the tokens: all letters but the last one at the start of a token."""
    return any(
        token in (word, IRREGULAR.get(word))
        or sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, token, strict=False)))
        >= max(2, len(word) - 1)
        for token in tokens
    )


@pytest.mark.parametrize(("path", "count"), [(GOLD, 60), (DEVELOPMENT, 75)], ids=["first", "development"])
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


@pytest.mark.parametrize("path", [GOLD, DEVELOPMENT], ids=["first", "development"])
def test_ends_of_attributes_and_relations_are_objects(path: Path) -> None:
    for caption_id, kinds in read_gold(path).items():
        objects = {form for (word,) in kinds["objects"] for form in word.removeprefix("?").split("|")}
        ends = [pair[1:] for pair in kinds["attributes"]] + [triple[::2] for triple in kinds["relations"]]
        for word in (word for pair in ends for word in pair):
            assert objects & set(word.removeprefix("?").split("|")), (caption_id, word)


def test_no_caption_is_annotated_twice() -> None:
    assert not read_gold(GOLD).keys() & read_gold(DEVELOPMENT).keys()


@pytest.mark.parametrize(("strict", "counts"), [(False, (2, 0, 0)), (True, (1, 2, 1))])
def test_strict_scores_allow_no_other_form(strict: bool, counts: tuple[int, int, int]) -> None:
    result = Score()
    found: list[list[Words]] = [[["dog"]], [["ball"]], [["sky"]]]
    _compare("caption", found, [["dog"], ["toy|ball"], ["?sky"]], result, strict)
    assert (result.right, len(result.wrong), len(result.missed)) == counts
    assert result.f1 == pytest.approx(2 * counts[0] / (2 * counts[0] + counts[1] + counts[2]))
