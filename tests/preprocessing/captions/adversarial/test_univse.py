"""UniVSE's attacks: one wrong thing in a well-formed caption, five of a kind, the same for everyone."""

import re

import pytest

from preprocessing.captions.adversarial.files import Adversarial
from preprocessing.captions.adversarial.univse import UniVSEAttack, univse_attack
from tests.preprocessing.captions.adversarial.training import ADJECTIVES, MASS, NOUNS, lexicon
from tests.preprocessing.captions.markup import image

LEXICON = lexicon()
KITCHEN = image(
    "[a {shiny} kettle] (standing on|stand on) [the stove] .",
    "[{two#} kettles|kettle] near [{fresh} bread] .",
    "a photograph",
    "",
)
ATTACKS: list[UniVSEAttack] = ["object", "attribute", "relation"]


def attacked(attack: UniVSEAttack, caption: int, count: int = 300) -> Adversarial:
    return list(univse_attack([KITCHEN], attack, LEXICON, seed=1, count=count))[caption]


def kinds(entry: Adversarial, *patterns: str) -> list[set[str]]:
    """The words that the texts have in each pattern's place; every text is of exactly one pattern."""
    found: list[set[str]] = [set() for _ in patterns]
    for text in entry.texts:
        matches = [(i, match) for i, p in enumerate(patterns) if (match := re.fullmatch(p, text))]
        assert len(matches) == 1, text
        found[matches[0][0]].update(matches[0][1].groups())
    return found


def some(words: list[str]) -> str:
    return "|".join(words)


def articled(words: list[str]) -> list[str]:
    return [f"{'an' if word[0] in 'aeiou' else 'a'} {word}" for word in words]


def test_objects_are_replaced_or_appended() -> None:
    the, appended, bare = kinds(
        attacked("object", 0),
        r"a shiny kettle standing on the (\w+)\.",
        r"a shiny kettle standing on the stove with (an? \w+)\.",
        r"a shiny (\w+) standing on the stove\.",
    )
    assert the == {*NOUNS, *MASS}
    assert appended == set(articled(NOUNS))
    assert bare == set(NOUNS)  # no "a snow"


def test_a_noun_keeps_its_number() -> None:
    many, mass, _ = kinds(
        attacked("object", 1),
        r"two (\w+) near fresh bread\.",
        r"two kettles near fresh (\w+)\.",
        r"two kettles near fresh bread with (an? \w+)\.",
    )
    assert many == {"men" if noun == "man" else noun + "s" for noun in NOUNS}
    assert mass == set(MASS)


def test_attributes_are_replaced_or_added() -> None:
    replaced, added, other = kinds(
        attacked("attribute", 0),
        r"(an? \w+) kettle standing on the stove\.",
        r"a shiny (\w+) kettle standing on the stove\.",
        r"a shiny kettle standing on the (\w+) stove\.",
    )
    assert replaced == set(articled(ADJECTIVES))
    assert added == other == set(ADJECTIVES)


def test_relations_change_in_one_part_or_one_is_added() -> None:
    added = rf"(?:on|under|near|behind|inside|with|in) (?:{some(articled(NOUNS))})"
    subject, relation, thing, after_subject, after_object = kinds(
        attacked("relation", 0),
        r"a shiny (\w+) standing on the stove\.",
        r"a shiny kettle (\w+|sitting on) the stove\.",
        r"a shiny kettle standing on the (\w+)\.",
        rf"a shiny kettle ({added}) standing on the stove\.",
        rf"a shiny kettle standing on the stove ({added})\.",
    )
    assert subject == set(NOUNS)
    # In the same form as the one replaced. (To sit on is not to stand on.)
    assert relation == {"riding", "holding", "watching", "carrying", "sitting on"}
    assert thing == {*NOUNS, *MASS}
    assert after_subject
    assert after_object


@pytest.mark.parametrize("attack", ATTACKS)
def test_five_different_wrong_texts_for_each_caption(attack: UniVSEAttack) -> None:
    entries = list(univse_attack([KITCHEN], attack, LEXICON, seed=0))
    assert [entry.caption_id for entry in entries] == [caption.caption_id for caption in KITCHEN]
    for entry, caption in zip(entries, KITCHEN, strict=True):
        assert entry.attack == attack
        assert entry.caption == caption.text
        assert not {other.text for other in KITCHEN} & set(entry.texts)
        assert len(set(entry.texts)) == len(entry.texts)
        assert bool(entry.reason) == (len(entry.texts) < 5)


def test_what_cannot_be_attacked_says_why() -> None:
    assert len(attacked("object", 2, 5).texts) == 5  # a noun can always be appended
    assert attacked("attribute", 2).reason == "no object"
    assert attacked("relation", 2).reason == "no object"
    assert attacked("object", 3).reason == "an empty caption"
    few = attacked("attribute", 0)
    assert few.texts
    assert few.reason == "too few irrelevant words that fit"
    everything = image("[a kettle]", " ".join([*NOUNS, *ADJECTIVES]))
    assert next(univse_attack([everything], "attribute", LEXICON, 0)).reason == "no irrelevant word that fits"


def test_seed_ids_and_image_alone_decide() -> None:
    other = image("[a {red} rose]", image_id="other")
    together = list(univse_attack([other, KITCHEN], "object", LEXICON, 3))
    assert together[1:] == list(univse_attack([KITCHEN], "object", LEXICON, 3))
    assert together[1:] == list(univse_attack([KITCHEN], "object", lexicon(), 3))
    assert together[1].texts != next(univse_attack([KITCHEN], "object", LEXICON, 4)).texts


def test_a_possessor_is_not_cut_from_what_it_has() -> None:
    owned = image("[the kettle] 's [lid]")
    entry = next(univse_attack([owned], "relation", LEXICON, 0, count=50))
    assert entry.texts
    assert all(text.startswith("the kettle's lid ") for text in entry.texts)


@pytest.mark.parametrize(
    ("marked", "unchanged"),
    [
        ("[{two#} kettles|kettle]", r"two .*kettles"),  # numbers are no attributes here
        ("[a {smaller|small} kettle]", r"a smaller .*kettle"),  # an adjective may not fit before "than"
    ],
)
def test_attributes_that_are_not_replaced(marked: str, unchanged: str) -> None:
    entry = next(univse_attack([image(marked)], "attribute", LEXICON, 0, count=50))
    assert entry.texts
    assert all(re.fullmatch(unchanged, text) for text in entry.texts)
