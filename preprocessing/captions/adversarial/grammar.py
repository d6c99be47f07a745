"""As much English as a swapped word needs: plurals, the third person, a or an, and the names of numbers."""

from __future__ import annotations

import re

_IRREGULAR_PLURALS = {
    "person": "people",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "ox": "oxen",
    "cactus": "cacti",
    "snowman": "snowmen",
    "human": "humans",
    "german": "germans",
    "talisman": "talismans",
}
_UNCHANGED = (
    "sheep deer fish moose bison salmon trout shrimp squid aircraft hovercraft spacecraft offspring series species "
    "cattle poultry police"
)
_UNCHANGED_PLURALS = frozenset(_UNCHANGED.split())
_PLURAL_ONLY = (
    "pants jeans shorts trousers slacks khakis leggings tights overalls pajamas clothes glasses sunglasses eyeglasses "
    "goggles binoculars scissors pliers tongs headphones earphones fatigues scrubs trunks stairs woods rapids "
    "surroundings belongings festivities skis cattle police"
)
PLURAL_ONLY = frozenset(_PLURAL_ONLY.split())
"""Nouns that are written as plurals and have no singular of their own."""
_F_TO_VES = re.compile(r"(?:lea|wol|shel|loa|hal|cal|scar|thie|el|hoo)f$|(?:kni|wi|li)fe$")
_O_TO_OES = frozenset(("potato", "tomato", "hero", "echo", "mosquito", "buffalo", "tornado", "volcano", "torpedo"))

_NO_VOWEL_SOUND = re.compile(r"(?:uni(?!n|m)|us[aeu]|eu|one\b|once|ukulele|ufo\b|u-|utensil)")
_VOWEL_SOUND = re.compile(
    r"(?:[aeiou]|hour|honest|hono[u]?r|heir|(?:8|11|18)(?!\d)|8\d|x-ray|suv\b|sos\b|mp3|nfl|nba|nyc)"
)

_IRREGULAR_THIRD_PERSON = {"be": "is", "have": "has", "do": "does", "go": "goes"}

NUMBER_WORDS: dict[str, int] = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "thirteen": 13,
    "fourteen": 14,
    "fifteen": 15,
    "sixteen": 16,
    "seventeen": 17,
    "eighteen": 18,
    "nineteen": 19,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
}
"""The 28 words that VSE-C's numeral attack draws from, with their values."""


def plural(noun: str) -> str:
    """The plural of a singular noun."""
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    if noun in _UNCHANGED_PLURALS or noun in PLURAL_ONLY:
        return noun
    if noun.endswith("man"):
        return noun[:-3] + "men"
    if _F_TO_VES.search(noun):
        return re.sub(r"fe?$", "ves", noun)
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    if re.search(r"(?:s|x|z|(?<!stoma)ch|sh)$", noun) or noun in _O_TO_OES:
        return noun + "es"
    return noun + "s"


def is_plural(word: str, lemma: str) -> bool:
    """Whether a noun as written, of which this is the base form, stands in the plural."""
    return word != lemma or word in PLURAL_ONLY or word == "people"


def third_person(verb: str) -> str:
    """The form of a verb's base form that goes with he, she and it."""
    if verb in _IRREGULAR_THIRD_PERSON:
        return _IRREGULAR_THIRD_PERSON[verb]
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(?:s|x|z|ch|sh|o)$", verb) else "s")


def article(following: str) -> str:
    """The indefinite article, by the sound of the word that follows."""
    return "an" if _VOWEL_SOUND.match(following) and not _NO_VOWEL_SOUND.match(following) else "a"


def number_value(word: str) -> int | None:
    """The value of a numeral in words ("two", "twenty-one") or digits; None if it is none."""
    if word.isdecimal() and word.isascii():
        return int(word)
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    tens, hyphen, ones = word.partition("-")
    if hyphen and NUMBER_WORDS.get(tens, 0) >= 20 and 1 <= NUMBER_WORDS.get(ones, 0) <= 9 and ones not in ("a", "an"):
        return NUMBER_WORDS[tens] + NUMBER_WORDS[ones]
    return None
