"""Words for sentences that sound like captions, by kind, and their inflection."""

from __future__ import annotations

from pathlib import Path

import yaml


def _read(path: Path) -> dict[str, list[str]]:
    lists: dict[str, str | list[str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        name: entries if isinstance(entries, list) else [entry.strip() for entry in entries.split(",")]
        for name, entries in lists.items()
    }


LISTS = _read(Path(__file__).with_suffix(".yaml"))

_IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "policeman": "policemen",
    "fisherman": "fishermen", "gentleman": "gentlemen", "businessman": "businessmen", "goose": "geese", "foot": "feet",
    "tooth": "teeth", "leaf": "leaves", "knife": "knives", "shelf": "shelves", "calf": "calves", "wolf": "wolves",
    "sheep": "sheep", "deer": "deer", "fish": "fish", "loaf": "loaves", "scarf": "scarves", "piano": "pianos",
    "photo": "photos", "video": "videos", "kangaroo": "kangaroos", "banjo": "banjos", "cello": "cellos",
    "life": "lives", "hoof": "hooves", "mouse": "mice", "half": "halves",
}  # fmt: skip
# Nouns whose only form is the plural; the lemma that English Web Treebank gives them.
PLURAL_ONLY = {
    "jeans": "jeans", "pants": "pants", "shorts": "shorts", "trousers": "trousers", "overalls": "overalls",
    "glasses": "glasses", "sunglasses": "sunglasses", "goggles": "goggles", "clothes": "clothes", "pajamas": "pajamas",
    "tights": "tights", "leggings": "leggings", "trunks": "trunks", "headphones": "headphones", "woods": "woods",
    "fatigues": "fatigues",
}  # fmt: skip
# Plurals that the treebank takes for lemmas of their own.
PLURAL_LEMMAS = {"person": "people"}
# Nouns that the lists hold in the plural.
PLURAL_OF_PAIRS = {
    "boots": "boot", "shoes": "shoe", "sandals": "sandal", "sneakers": "sneaker", "socks": "sock", "skates": "skate",
    "gloves": "glove", "slippers": "slipper", "earrings": "earring", "mittens": "mitten", "heels": "heel",
    "muffs": "muff",
}  # fmt: skip
# Past participles that are not regular.
_PARTICIPLES = {
    "run": "run", "ride": "ridden", "drive": "driven", "swim": "swum", "fly": "flown", "swing": "swung", "fall":
    "fallen", "go": "gone", "sit": "sat", "stand": "stood", "lie": "lain", "lay": "laid", "sleep": "slept", "hang":
    "hung", "bend": "bent", "eat": "eaten", "sing": "sung", "read": "read", "write": "written", "fight": "fought",
    "drink": "drunk", "dig": "dug", "spin": "spun", "hold": "held", "take": "taken", "bring": "brought", "show":
    "shown", "throw": "thrown", "catch": "caught", "hit": "hit", "wear": "worn", "make": "made", "bite": "bitten",
    "cut": "cut", "sell": "sold", "buy": "bought", "see": "seen", "lead": "led", "teach": "taught", "feed": "fed",
    "leave": "left", "sweep": "swept", "draw": "drawn", "shake": "shaken", "do": "done", "blow": "blown", "build":
    "built", "put": "put", "set": "set", "stick": "stuck", "get": "gotten", "come": "come", "light": "lit", "begin":
    "begun", "spread": "spread", "have": "had", "give": "given", "strike": "struck", "speak": "spoken", "dive":
    "dived", "leap": "leaped", "hide": "hidden", "find": "found", "lose": "lost", "keep": "kept", "be": "been",
    "let": "let", "beat": "beaten", "break": "broken", "ring": "rung", "shoot": "shot", "wind": "wound",
}  # fmt: skip
_VOWELS = "aeiou"
# Two syllables with the stress on the first: the last consonant is not doubled.
_NOT_DOUBLED = frozenset(
    {"cover", "enter", "follow", "gather", "linger", "listen", "open", "position", "travel", "visit", "wander"}
)


def plural(noun: str) -> str:
    """The plural of a noun."""
    if noun in PLURAL_ONLY:
        return noun
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    return _with_s(noun)


def third_person(verb: str) -> str:
    """Third person singular of the present."""
    return {"have": "has", "be": "is"}.get(verb) or _with_s(verb)


def gerund(verb: str) -> str:
    """The form in -ing."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        return verb[:-1] + "ing"
    return _doubled(verb) + "ing"


def participle(verb: str) -> str:
    """The past participle."""
    if verb in _PARTICIPLES:
        return _PARTICIPLES[verb]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return verb[:-1] + "ied"
    return _doubled(verb) + "ed"


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "z", "ch", "sh")) or (word.endswith("o") and word[-2] not in _VOWELS):
        return word + "es"
    return word + "s"


def _doubled(verb: str) -> str:
    """With its last consonant doubled where that is a single one after a single vowel."""
    if len(verb) < 3 or verb in _NOT_DOUBLED or verb[-1] in _VOWELS + "wxy":
        return verb
    single = verb[-2] in _VOWELS and verb[-3] not in _VOWELS
    if verb.startswith("qu") and len(verb) == 4:
        single = True
    return verb + verb[-1] if single else verb
