"""Pools of words: thresholds, UniVSE's list, and the file."""

from pathlib import Path

import pytest

from preprocessing.captions.pools import PAPER_ADJECTIVES, Pools, PoolsError
from tests.preprocessing.captions.markup import graph

GRAPHS = [
    graph("[a {black} {parked*} car] (stands in front of|stand in front of) [{two#} houses|house]"),
    graph("[a {black} car] (standing in front of|stand in front of) [a tree]"),
]


def test_words_above_their_thresholds() -> None:
    assert Pools.build(GRAPHS, 2, 2, 2) == Pools(("car",), ("black",), ("stand in front of",))
    assert Pools.build(GRAPHS[::-1], 1, 1, 1).nouns == ("car", "house", "tree")


def test_only_adjectives_describe() -> None:
    assert Pools.build(GRAPHS, 1, 1, 1).adjectives == ("black",)


def test_adjectives_are_visible_and_nouns_are_nouns() -> None:
    """The pools of 30,000 captions had "-", "off", "like" and "second" as adjectives, "-" and "up" as nouns."""
    graphs = [
        graph("[a {-} {off} {like} {second} {muddy} {karate} dog] (jumps off|jump off) [a wetsuit]"),
        graph("[a {red} orange] (jumps off|jump off) [a -]"),
        graph("[an orange] (looks like|look like) [an up]"),
        graph("[an orange] (looks like|look like) [a dog]"),
        graph("[an {orange} dog]"),
    ]
    pools = Pools.build(graphs, 1, 1, 1)
    assert pools.adjectives == ("muddy", "red")
    assert pools.nouns == ("dog", "orange", "wetsuit")


def test_the_published_adjectives() -> None:
    pools = Pools.build(GRAPHS, 1, 100, 1, adjectives="paper")
    assert pools.adjectives == tuple(sorted(PAPER_ADJECTIVES))
    assert len(set(PAPER_ADJECTIVES)) == 37


@pytest.mark.parametrize(
    ("thresholds", "name"), [((9, 1, 1), "nouns"), ((1, 9, 1), "adjectives"), ((1, 1, 9), "relations")]
)
def test_an_empty_pool_is_an_error(thresholds: tuple[int, int, int], name: str) -> None:
    with pytest.raises(PoolsError, match=f"lower pools.min_{name}"):
        Pools.build(GRAPHS, *thresholds)


def test_saved_and_loaded(tmp_path: Path) -> None:
    pools = Pools.build(GRAPHS, 1, 1, 1)
    pools.save(tmp_path / Pools.FILE)
    assert Pools.load(tmp_path / Pools.FILE) == pools


@pytest.mark.parametrize("text", ["", "[]", '{"nouns": []}', '{"nouns": [1], "adjectives": [], "relations": []}'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pools.json"
    path.write_text(text)
    with pytest.raises(PoolsError, match=r"pools\.json"):
        Pools.load(path)
