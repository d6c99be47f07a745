"""English that a swapped word needs: plurals, a or an, and the names of numbers."""

import re

from preprocessing.captions.inflection import inflect

_PLURAL_ONLY = (
    "pants jeans shorts trousers slacks khakis leggings tights overalls pajamas clothes glasses sunglasses eyeglasses "
    "goggles binoculars scissors pliers tongs headphones earphones fatigues scrubs trunks stairs woods rapids "
    "surroundings belongings festivities skis cattle police"
)
PLURAL_ONLY = frozenset(_PLURAL_ONLY.split())
"""Nouns that are written as plurals and have no singular of their own."""
_NO_VOWEL_SOUND = re.compile(r"(?:uni(?!n|m)|us[aeu]|eu|one\b|once|ukulele|ufo\b|u-|utensil)")
_VOWEL_SOUND = re.compile(
    r"(?:[aeiou]|hour|honest|hono[u]?r|heir|(?:8|11|18)(?!\d)|8\d|x-ray|suv\b|sos\b|mp3|nfl|nba|nyc)"
)

_UNITS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty"
NUMBER_WORDS: dict[str, int] = {
    "a": 1,
    "an": 1,
    **{word: value for value, word in enumerate(_UNITS.split(), start=1)},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), start=3)},
}
"""The 28 words that VSE-C's numeral attack draws from, with their values."""


def plural(noun: str) -> str:
    """Return the plural of a singular noun."""
    return noun if noun in PLURAL_ONLY else inflect(noun, "NNS")


def is_plural(word: str, lemma: str) -> bool:
    """Return whether a noun stands in the plural, by its form and its base form."""
    return word != lemma or word in PLURAL_ONLY or word == "people"


def article(following: str) -> str:
    """Return the indefinite article, by the sound of the word that follows."""
    return "an" if _VOWEL_SOUND.match(following) and not _NO_VOWEL_SOUND.match(following) else "a"


def number_value(word: str) -> int | None:
    """Return the value of a numeral in words ("two", "twenty-one") or digits; None if it is none."""
    if word.isdecimal() and word.isascii():
        return int(word)
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    tens, hyphen, ones = word.partition("-")
    if hyphen and NUMBER_WORDS.get(tens, 0) >= 20 and 1 <= NUMBER_WORDS.get(ones, 0) <= 9 and ones not in ("a", "an"):
        return NUMBER_WORDS[tens] + NUMBER_WORDS[ones]
    return None
