"""Forms of English nouns and verbs."""

from functools import cache
from typing import Literal

Tag = Literal["NNS", "VBZ", "VBG", "VBN"]
"""Penn Treebank tags: plural, third person singular, present participle, past participle."""

# Where lemminflect's first choice is not that of captions.
_EXCEPTIONS: dict[tuple[str, Tag], str] = {
    ("fish", "NNS"): "fish",
    ("groomsman", "NNS"): "groomsmen",
    ("person", "NNS"): "people",
    ("lie", "VBN"): "lain",
    ("light", "VBN"): "lit",
    ("rappel", "VBG"): "rappelling",
    ("rappel", "VBN"): "rappelled",
    ("ski", "VBN"): "skied",
}


@cache
def inflect(lemma: str, tag: Tag) -> str:
    """Return the form of a base form that has the tag; a noun that is not counted ("hockey") is its own plural."""
    from lemminflect import getInflection  # imports spaCy

    return _EXCEPTIONS.get((lemma, tag)) or str(getInflection(lemma, tag)[0])
