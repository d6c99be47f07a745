"""A caption as tokens with the things its graph names, and what is needed to change words in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from preprocessing.captions.adversarial.grammar import article, is_plural
from preprocessing.captions.graph import Relation, SceneGraph, SceneObject

Frame = Literal["indefinite", "plural", "bare", "definite"]
"""The surroundings of a noun, which decide on the nouns that fit: after "a"; many; nothing before it; "the"."""

Edit = tuple[int, int, Sequence[str]]
"""The tokens from the first place up to the second become these."""

_INDEFINITE = frozenset(("a", "an", "one", "another", "each", "every"))
_DEFINITE = frozenset(["the", "this", "that", "these", "those", "his", "her", "its", "their", "my", "your", "our"])
_ATTACHED = frozenset((".", ",", "!", "?", ";", ":", "n't"))


@dataclass(frozen=True, slots=True)
class TokenizedCaption:
    """A caption with its graph.

    Attributes:
        image_id: of its image.
        caption_id: its own, unique in the split.
        tokens: in lower case; the graph's objects refer to them.
        graph: what it says.
    """

    image_id: str
    caption_id: str
    tokens: tuple[str, ...]
    graph: SceneGraph

    def __post_init__(self) -> None:
        for thing in self.graph.objects:
            if thing.word not in self.tokens[thing.start : thing.end]:
                raise ValueError(
                    f"caption {self.caption_id!r}: the noun {thing.word!r} is not among its tokens {thing.start} to "
                    f"{thing.end} ({' '.join(self.tokens)!r}): give the lower-case tokens that the graph was made from"
                )

    @property
    def text(self) -> str:
        """The caption as a line of text, written in the same way as one with changed words."""
        return join(self.tokens)


def join(tokens: Iterable[str]) -> str:
    """Tokens as text: a space between them, except before punctuation and contracted endings ("'s", "n't")."""
    text = ""
    for token in tokens:
        attached = token in _ATTACHED or (token.startswith("'") and token[1:].isalpha())
        text += token if attached or not text else " " + token
    return text


def apply(tokens: Sequence[str], edits: Iterable[Edit]) -> list[str]:
    """Change tokens in places that do not overlap; "a" and "an" follow the sound of what then comes after them."""
    changed: list[str] = []
    done = 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        changed.extend(tokens[done:start])
        first = len(changed)
        changed.extend(replacement)
        changed.extend(tokens[end : end + 1])  # an article at the edit's end agrees with it
        _agree(changed, first - 1, len(changed) - 1)
        del changed[len(changed) - len(tokens[end : end + 1]) :]
        done = end
    changed.extend(tokens[done:])
    return changed


def _agree(tokens: list[str], first: int, end: int) -> None:
    """Correct the articles among the tokens from ``first`` up to ``end``."""
    for i in range(max(first, 0), end):
        if tokens[i] in ("a", "an"):
            tokens[i] = article(tokens[i + 1])


def noun_span(caption: TokenizedCaption, thing: SceneObject) -> tuple[int, int]:
    """First token of the noun with the nouns compounded with it, and the token after it."""
    head = max(i for i in range(thing.start, thing.end) if caption.tokens[i] == thing.word)
    phrase = thing.phrase.split()
    first = head + 1 - len(phrase)
    if first >= thing.start and list(caption.tokens[first : head + 1]) == phrase:
        return first, head + 1
    return head, head + 1


def frame_of(caption: TokenizedCaption, thing: SceneObject) -> Frame:
    """Return the surroundings of a thing's noun."""
    if is_plural(thing.word, thing.lemma):
        return "plural"
    # Whether a phrase begins with its determiner is the parser's choice.
    before = caption.tokens[max(thing.start - 1, 0) : noun_span(caption, thing)[0]]
    if any(token in _INDEFINITE for token in before):
        return "indefinite"
    if any(token in _DEFINITE or token.startswith("'") for token in before):
        return "definite"
    return "bare"


def find_words(caption: TokenizedCaption, words: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of these words in a row between two places; None unless exactly once."""
    wanted = words.split()
    places = [i for i in range(start, end - len(wanted) + 1) if list(caption.tokens[i : i + len(wanted)]) == wanted]
    return (places[0], places[0] + len(wanted)) if wanted and len(places) == 1 else None


def relation_span(caption: TokenizedCaption, relation: Relation) -> tuple[int, int] | None:
    """Return the place of a relation's words: between its things, or else anywhere; None unless one."""
    subject, other = (caption.graph.objects[i] for i in (relation.subject, relation.object))
    between = find_words(caption, relation.words, subject.end, other.start)
    return between or find_words(caption, relation.words, 0, len(caption.tokens))
