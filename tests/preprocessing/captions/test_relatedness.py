"""Related words: the table, what captions teach, both against pairs judged by hand, and the file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.captions.relatedness import Relatedness, RelatednessError
from preprocessing.captions.word_classes import _SENSES, same_or_kind_of
from tests.preprocessing.captions.markup import graph

PAIRS = json.loads((Path(__file__).parent / "assets" / "noun_pairs.json").read_text())
words = st.sampled_from(sorted(_SENSES))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("couch", "sofa", True),  # the same
        ("dog", "puppy", True),  # a kind
        ("animal", "puppy", True),  # a kind of a kind
        ("man", "woman", False),  # kinds of one thing
        ("dog", "cat", False),
        ("bike", "bicycle", True),  # two senses of a bike,
        ("bike", "motorcycle", True),
        ("bicycle", "motorcycle", False),  # which are not each other's
        ("gray", "grey", True),
        ("red", "blue", False),
        ("zyzzyva", "zyzzyva", True),  # a word that the table lacks
        ("zyzzyva", "dog", False),
    ],
)
def test_the_table(one: str, other: str, expected: bool) -> None:
    assert same_or_kind_of(one, other) is expected


@given(words, words)
def test_relatedness_is_symmetric(one: str, other: str) -> None:
    assert same_or_kind_of(one, other) == same_or_kind_of(other, one)
    assert same_or_kind_of(one, one)


@pytest.mark.parametrize(("part", "precision", "recall"), [("seen", 0.95, 0.95), ("unseen", 0.8, 0.8)])
def test_the_table_agrees_with_judged_pairs(part: str, precision: float, recall: float) -> None:
    found = [same_or_kind_of(*pair) for pair in PAIRS[part]["related"]]
    wrong = [same_or_kind_of(*pair) for pair in PAIRS[part]["unrelated"]]
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
    assert relatedness.learned == [("glorp", "snark")]
    assert relatedness.related("snark", "glorp")
    assert relatedness.related("dog", "puppy")  # the table holds beside it


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
    assert built(same + [["[a {slithy} wabe]", "[a {vorpal} tove]"]] * 200).learned == [("frabjous", "mimsy")]


def test_the_order_of_images_does_not_matter(tmp_path: Path) -> None:
    built(world()).save(tmp_path / "one.json")
    built(world()[::-1]).save(tmp_path / "other.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


def test_saved_and_loaded(tmp_path: Path) -> None:
    relatedness = Relatedness([("glorp", "snark"), ("a b", "c")])
    relatedness.save(tmp_path / Relatedness.FILE)
    assert Relatedness.load(tmp_path / Relatedness.FILE).learned == relatedness.learned


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"learned": 3}', '{"learned": [["b", "a"]]}', '{"learned": [["a"]]}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "related.json"
    path.write_text(text)
    with pytest.raises(RelatednessError, match=r"related\.json"):
        Relatedness.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RelatednessError, match="No such file"):
        Relatedness.load(tmp_path / "absent.json")
