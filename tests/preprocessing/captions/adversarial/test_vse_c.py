"""VSE-C's attacks: nouns, the grammar of numbers, and relations."""

import pytest

from preprocessing.captions.adversarial.grammar import PREPOSITIONS, wrong_prepositions
from preprocessing.captions.adversarial.vse_c import VSECAttack, vse_c_attack
from tests.preprocessing.captions.adversarial.training import MASS, NOUNS, lexicon
from tests.preprocessing.captions.markup import image

LEXICON = lexicon()


def texts(attack: VSECAttack, *marked: str, limit: int = 1000) -> set[str]:
    return set(next(vse_c_attack([image(*marked)], attack, LEXICON, 0, limit)).texts)


def test_nouns_that_are_not_related_to_the_replaced_one() -> None:
    found = texts("noun", "[a puppy] in [snow]", "[{two#} cars|car]")
    # A dog may be a puppy; a car is in a caption of the image.
    first = {f"{'an' if n[0] in 'aeiou' else 'a'} {n} in snow" for n in NOUNS if n not in ("dog", "car")}
    assert found == first | {f"a puppy in {mass}" for mass in MASS if mass != "snow"}


def test_phrases_with_other_signs_than_letters_are_passed_over() -> None:
    assert texts("noun", "[a x-ray]") == set()
    assert texts("noun", "[a 3d movie]") == set()


@pytest.mark.parametrize(
    ("marked", "value", "some"),
    [
        ("[a {small} dog] runs .", 1, {"two small dogs runs.", "eighty small dogs runs."}),
        ("[a man] is there", 1, {"three men are there"}),
        ("[an owl] has [food]", 1, {"eleven owls have food"}),
        ("[a dog] (rides|ride) [the boat]", 1, {"six dogs ride the boat"}),
        ("[a puppy] (sitting on|sit on) [the rug]", 1, {"two puppies sitting on the rug"}),
        ("[{two#} dogs|dog] (ride|ride) [the boat]", 2, {"a dog rides the boat", "one dog rides the boat"}),
        (
            "[{two#} {old} owls|owl] are there",
            2,
            {"an old owl is there", "one old owl is there", "nine old owls are there"},
        ),
        ("[{three#} owls|owl]", 3, {"an owl", "one owl", "two owls"}),
        ("[{two#} people]", 2, {"a person", "seven people"}),
        ("[{2#} people|person] were there", 2, {"a person was there", "three people were there"}),
        ("[the cat] and [a dog] are there", 1, {"the cat and two dogs are there"}),
        ("[the cat] and [{two#} dogs|dog] are there", 2, {"the cat and a dog are there"}),
        ("[{four#} {black} and white cats|cat]", 4, {"a black and white cat"}),
        ("[a tennis_racket]", 1, {"two tennis rackets"}),
    ],
)
def test_numbers_with_their_grammar(marked: str, value: int, some: set[str]) -> None:
    found = texts("numeral", marked)
    assert some <= found
    # 26 values; of the value 1 there are two ways to say it, "a" and "one".
    assert len(found) == (25 if value == 1 else 26)


@pytest.mark.parametrize(
    "marked",
    [
        "[the dog] runs",
        "[dogs|dog] run",
        "[{two#} pants]",  # no singular
        "[a {group~} of people]",  # the number of the group, not of the people
        "[a few dogs|dog]",  # "a" does not stand for one
        "[{hundreds#} dogs|dog]",
    ],
)
def test_phrases_without_a_number_to_change(marked: str) -> None:
    entry = next(vse_c_attack([image(marked)], "numeral", LEXICON, 0))
    assert entry.texts == ()
    assert entry.reason == "no number"


def test_phrases_that_are_not_joined_trade_places() -> None:
    assert texts("relation", "[a man] rides [the {old} horse]") == {"the old horse rides a man"}
    joined = "[a man] and [a dog] , [a cat] see [an owl]"
    assert texts("relation", joined) == {
        "an owl and a dog, a cat see a man",
        "a man and an owl, a cat see a dog",
        "a man and a dog, an owl see a cat",
    }
    assert texts("relation", "[a man] [a dog] runs") == set()
    assert texts("relation", "[a man] sees [a man]") == set()  # the same text is no other caption


def test_a_preposition_becomes_one_of_other_classes() -> None:
    found = texts("relation", "sits on [a rug]")
    assert found == {f"sits {word} a rug" for word in wrong_prepositions("on")}
    assert {"sits under a rug", "sits behind a rug", "sits with a rug"} <= found
    # What shares a class with it, also where it stands in others too; conjunctions; "next" without its "to".
    assert not {f"sits {word} a rug" for word in ("on", "upon", "over", "beyond", "while", "because", "next")} & found


@pytest.mark.parametrize(
    ("word", "right", "wrong"),
    [
        ("in", {"within", "inside", "at"}, {"on", "under", "near"}),
        ("near", {"next", "beside"}, {"far", "in"}),
        ("beside", {"near", "with", "by"}, {"on"}),
        ("to", {"toward", "for", "of", "next"}, {"from", "in"}),
        ("without", {"without"}, {"with"}),
    ],
)
def test_published_classes(word: str, right: set[str], wrong: set[str]) -> None:
    assert right <= PREPOSITIONS[word]
    assert not wrong & PREPOSITIONS[word]
    assert not PREPOSITIONS[word] & set(wrong_prepositions(word))
    assert all(word in PREPOSITIONS[other] for other in PREPOSITIONS[word])


def test_a_limit_keeps_a_part_of_all() -> None:
    every = texts("numeral", "[a dog] and [{two#} cats|cat]")
    entry = next(vse_c_attack([image("[a dog] and [{two#} cats|cat]")], "numeral", LEXICON, 0, limit=20))
    assert len(entry.texts) == 20
    assert set(entry.texts) < every
    assert entry.reason == ""
    more = next(vse_c_attack([image("[a dog] and [{two#} cats|cat]")], "numeral", LEXICON, 0, limit=99))
    assert more.reason == "all numbers used"
    other = next(vse_c_attack([image("[a dog] and [{two#} cats|cat]")], "numeral", LEXICON, 1, limit=20))
    assert other.texts != entry.texts


def test_true_captions_of_the_image_do_not_come_out() -> None:
    assert "two dogs" not in texts("numeral", "[a dog]", "[{two#} dogs|dog]")
