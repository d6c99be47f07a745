"""WordNet's synsets and hypernyms: words of the shipped file, and a small database exported."""

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.captions.wordnet.export import export
from preprocessing.captions.wordnet.taxonomy import Taxonomy, WordKind, load_taxonomy


def test_kinds_of_a_word_and_parts_of_the_body() -> None:
    taxonomy = load_taxonomy()
    assert taxonomy.kinds("red") == {"noun", "adjective"}
    assert taxonomy.kinds("wetsuit") == set()
    assert [word for word in ("neck", "dog", "beard", "wetsuit") if taxonomy.is_body_part(word)] == ["neck", "beard"]


def test_plurals_by_their_singulars() -> None:
    taxonomy = load_taxonomy()
    words = ("clouds", "tennis", "bus", "cloud", "wetsuits")
    assert [word for word in words if taxonomy.is_plural(word)] == ["clouds"]


WORDS = st.sampled_from(
    [
        "dog",
        "puppy",
        "animal",
        "man",
        "woman",
        "person",
        "couch",
        "sofa",
        "bike",
        "bicycle",
        "wood",
        "forest",
        "zyzzyva",
    ]
)


@pytest.mark.parametrize(
    ("one", "other", "kind", "expected"),
    [
        ("couch", "sofa", "noun", True),  # the same
        ("dog", "puppy", "noun", True),  # a kind
        ("animal", "puppy", "noun", True),  # a kind of a kind
        ("people", "skier", "noun", True),  # a plural
        ("jeans", "denim", "noun", True),
        ("man", "woman", "noun", False),  # kinds of one thing
        ("dog", "cat", "noun", False),
        ("bike", "bicycle", "noun", True),  # two senses of a bike,
        ("bike", "motorcycle", "noun", True),
        ("bicycle", "motorcycle", "noun", False),  # which are not each other's
        ("drag", "pull", "verb", True),
        ("drag", "pull", "adjective", False),
        ("gray", "grey", "adjective", True),
        ("big", "huge", "adjective", True),  # similar to the head of a cluster
        ("red", "blue", "adjective", False),
        ("zyzzyvas", "zyzzyvas", "noun", True),  # a word that WordNet lacks
        ("zyzzyvas", "dog", "noun", False),
    ],
)
def test_the_shipped_file(one: str, other: str, kind: WordKind, expected: bool) -> None:
    assert load_taxonomy().same_or_kind_of(one, other, kind) is expected


@given(WORDS, WORDS)
def test_relations_are_symmetric(one: str, other: str) -> None:
    taxonomy = load_taxonomy()
    assert taxonomy.same_or_kind_of(one, other, "noun") == taxonomy.same_or_kind_of(other, one, "noun")
    assert taxonomy.same_category(one, other) == taxonomy.same_category(other, one)


def test_categories() -> None:
    taxonomy = load_taxonomy()
    assert taxonomy.same_category("baby", "toddler")
    assert not taxonomy.same_category("surfer", "surfboard")
    assert taxonomy.same_category("surfer", "glorp")  # nothing is known of one of them


def database(folder: Path) -> Path:
    """Two nouns, the one a kind of the other; a name; a cluster of two adjectives; no verbs."""
    lines = {
        "data.noun": [
            "00000010 05 n 02 animal 0 beast 1 000 | a being",
            "00000020 05 n 01 dog 0 002 @ 00000010 n 0000 ~ 00000030 n 0000 | a beast",
            "00000030 18 n 01 Rex 0 001 @i 00000020 n 0000 | a dog",
        ],
        "index.noun": ["animal n 1 0 1 0 00000010", "dog n 1 2 @ ~ 1 0 00000020", "rex n 1 1 @ 1 0 00000030"],
        "data.adj": [
            "00000010 00 a 01 big 0 001 & 00000020 a 0000 | large",
            "00000020 00 s 01 huge 0 001 & 00000010 a 0000 | large",
        ],
        "index.adj": ["big a 1 1 & 1 0 00000010", "huge a 1 1 & 1 0 00000020"],
        "data.verb": [],
        "index.verb": [],
    }
    for name, content in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in ["  1 the licence", *content]))
    return folder


def test_a_database_is_exported(tmp_path: Path) -> None:
    exported = export(database(tmp_path))
    assert exported == export(tmp_path)
    data = json.loads(lzma.decompress(exported))
    assert set(data["senses"]["noun"]) == {"animal", "dog"}
    taxonomy = Taxonomy(**data)
    assert taxonomy.same_or_kind_of("dog", "animal", "noun")
    assert taxonomy.same_or_kind_of("big", "huge", "adjective")
    assert taxonomy.same_category("dog", "animal")
