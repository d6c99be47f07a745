"""English that a swapped word needs: plurals, a or an, and the names of numbers."""

import re

from preprocessing.captions.inflection import inflect
from preprocessing.captions.word_lists import WORD_LISTS

PLURAL_ONLY = frozenset(WORD_LISTS["plural_only"])
_NO_VOWEL_SOUND = re.compile(r"(?:uni(?!n|m)|us[aeu]|eu|one\b|once|ukulele|ufo\b|u-|utensil)")
_VOWEL_SOUND = re.compile(
    r"(?:[aeiou]|hour|honest|hono[u]?r|heir|(?:8|11|18)(?!\d)|8\d|x-ray|suv\b|sos\b|mp3|nfl|nba|nyc)"
)

NUMBER_WORDS: dict[str, int] = {
    **{"a": 1, "an": 1},
    **{word: value for value, word in enumerate(WORD_LISTS["units"], start=1)},
    **{word: 10 * value for value, word in enumerate(WORD_LISTS["tens"], start=3)},
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


_CLASSES = [frozenset(words.split()) for words in WORD_LISTS["preposition_classes"]]
PREPOSITIONS = {
    word: frozenset[str]().union(*(mates for mates in _CLASSES if word in mates))
    for members in _CLASSES
    for word in members
}
"""Each preposition with all that share one of VSE-C's classes with it, itself among them."""


def wrong_prepositions(word: str) -> list[str]:
    """Return the prepositions that share no class with this one, sorted.

    Differs from VSE-C, which takes the words of every class without this one, though another class may have both, and
    which puts conjunctions and "next" before nouns too.
    """
    return sorted(set(PREPOSITIONS) - PREPOSITIONS[word] - set(WORD_LISTS["never_drawn"]))
