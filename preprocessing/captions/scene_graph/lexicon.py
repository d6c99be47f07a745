"""English words of ``lexicon.yaml`` that say how many, where, or who: what no dependency label tells."""

from pathlib import Path

from preprocessing.captions.word_lists import read_word_lists

_LISTS = {name: frozenset(words) for name, words in read_word_lists(Path(__file__).with_suffix(".yaml")).items()}

QUANTIFIER_NOUNS = _LISTS["quantifier_nouns"]
# "a body of water" is water, and a body of anything else is a body.
MASS_PHRASES = frozenset({("body", "water")})
QUANTIFIERS = _LISTS["quantifiers"]
PLACE_NOUNS = _LISTS["place_nouns"]
BARE_PLACES = _LISTS["bare_places"]
ABSTRACT_PHRASES = frozenset(tuple(phrase.split()) for phrase in _LISTS["abstract_phrases"])
RELATIONAL = _LISTS["relational"]
BACKGROUNDS = _LISTS["backgrounds"]
MATERIALS = _LISTS["materials"]
SPORTS = _LISTS["sports"]
NON_THINGS = _LISTS["non_things"]
NON_PROPERTIES = _LISTS["non_properties"]
NOT_MADE = _LISTS["not_made"]
COLOURS = _LISTS["colours"]
SHADES = _LISTS["shades"]
FEMALE = _LISTS["female"]
MALE = _LISTS["male"]
# Ends of words that tell who it is: "fireman", "horsewoman".
FEMALE_ENDINGS = ("woman", "girl", "lady")
MALE_ENDINGS = ("man", "boy")
PERSONS = _LISTS["persons"]
YOUNG = _LISTS["young"]
ANIMALS = _LISTS["animals"]
LIVING_ACTIONS = _LISTS["living_actions"]
THING_ACTIONS = _LISTS["thing_actions"]
SCENES = _LISTS["scenes"]
ENGLISH = _LISTS["english"]
FOREIGN = _LISTS["foreign"]


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text with blanks between them."""
    return frozenset(text.split())
