"""VSE-C's classes of prepositions that may stand for one another."""

_CLASSES = (
    "toward towards beyond to",
    "behind after past",
    "outside out",
    "on upon up atop onto over above beyond",
    "in within among at during into inside from between",
    "with by beside",
    "around like",
    "underneath under beneath down below",
    "to for of",
    "about within",
    "because as for",
    "near next beside",
    "through thru",
    "against next to",
    "along during across while",
    "off out",
    "without",
    "before",
)

# Words of the classes that cannot stand before a noun alone ("next" needs its "to"): they are never put in a place.
_NEVER_DRAWN = frozenset(("because", "as", "while", "next", "up", "down", "out", "off"))


def _classmates() -> dict[str, frozenset[str]]:
    mates: dict[str, set[str]] = {}
    for line in _CLASSES:
        words = line.split()
        for word in words:
            mates.setdefault(word, set()).update(words)
    return {word: frozenset(others) for word, others in mates.items()}


PREPOSITIONS: dict[str, frozenset[str]] = _classmates()
"""Each preposition with all that share a class with it, itself among them."""


def wrong_prepositions(word: str) -> list[str]:
    """The prepositions that share no class with this one, sorted.

    Differs from VSE-C, which takes the words of every class without this one, so that "on" may become "beyond", which
    is in one class with it, because it is in another as well; and which puts conjunctions and "next" before
    nouns too.
    """
    return sorted(set(PREPOSITIONS) - PREPOSITIONS[word] - _NEVER_DRAWN)
