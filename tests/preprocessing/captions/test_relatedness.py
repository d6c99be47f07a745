"""Related words: WordNet and what captions teach, both against pairs judged by hand."""

import json
from pathlib import Path

import pytest

from preprocessing.captions.relatedness import Relatedness
from tests.preprocessing.captions.markup import graph

PAIRS = json.loads((Path(__file__).parent / "assets" / "noun_pairs.json").read_text())


@pytest.mark.parametrize(("part", "precision", "recall"), [("seen", 0.98, 0.79), ("unseen", 0.9, 0.58)])
def test_wordnet_agrees_with_judged_pairs(part: str, precision: float, recall: float) -> None:
    related = Relatedness().related
    found = [related(*pair, "noun") for pair in PAIRS[part]["related"]]
    wrong = [related(*pair, "noun") for pair in PAIRS[part]["unrelated"]]
    assert sum(found) / len(found) >= recall
    assert sum(found) / (sum(found) + sum(wrong)) >= precision


def world() -> list[list[str]]:
    """Images whose captions call one thing a glorp or a snark, on a tove; others show something else."""
    same = [["[a {shiny} glorp] (on|on) [a tove]", "[a {shiny} snark] (on|on) [a tove]"]] * 10
    return same + [["[a {round} wabe] (in|in) [a borogove]"]] * 200


def built(images: list[list[str]]) -> Relatedness:
    return Relatedness.build([[graph(text) for text in captions] for captions in images])


def test_two_names_of_one_thing_are_learned() -> None:
    relatedness = built(world())
    assert relatedness.learned == {("glorp", "snark")}
    assert relatedness.related("snark", "glorp", "noun")
    assert relatedness.related("dog", "puppy", "noun")  # WordNet holds as well


def test_nouns_of_two_categories_are_not_learned() -> None:
    named = [[[text.replace("glorp", one).replace("snark", other) for text in image] for image in world()]
             for one, other in (("baby", "toddler"), ("surfer", "surfboard"))]  # fmt: skip
    assert [built(images).learned for images in named] == [{("baby", "toddler")}, set()]


@pytest.mark.parametrize(
    ("change", "images"),
    [
        ("too few images", world()[6:]),
        ("one caption has both", world() + [["[a glorp] and [a snark]"]] * 3),
        ("no more often than by chance", world()[:10] * 21),
        ("other company", [[c[0], "[a tove] (under|under) [a {dull} snark]"] for c in world()[:10]] + world()[10:]),
    ],
)
def test_each_condition_is_needed(change: str, images: list[list[str]]) -> None:
    assert ("glorp", "snark") not in built(images).learned, change


def test_attributes_are_learned_too() -> None:
    same = [["[a {frabjous} wabe]", "[a {mimsy} wabe]"]] * 10
    assert built(same + [["[a {slithy} wabe]", "[a {vorpal} tove]"]] * 200).learned == {("frabjous", "mimsy")}
