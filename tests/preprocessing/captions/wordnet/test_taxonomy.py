"""WordNet's synsets and hypernyms: words of the shipped file."""

import pytest

from preprocessing.captions.wordnet.taxonomy import WordKind, load_taxonomy


def test_single_words() -> None:
    taxonomy = load_taxonomy()
    assert taxonomy.kinds("red") == {"noun", "adjective"}
    assert taxonomy.kinds("wetsuit") == set()
    assert [word for word in ("neck", "dog", "beard", "wetsuit") if taxonomy.is_body_part(word)] == ["neck", "beard"]
    words = ("clouds", "tennis", "bus", "cloud", "wetsuits")
    assert [word for word in words if taxonomy.is_plural(word)] == ["clouds"]


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


def test_categories() -> None:
    taxonomy = load_taxonomy()
    assert taxonomy.same_category("baby", "toddler")
    assert not taxonomy.same_category("surfer", "surfboard")
    assert taxonomy.same_category("surfer", "glorp")  # nothing is known of one of them
