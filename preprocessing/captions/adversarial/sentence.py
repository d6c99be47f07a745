"""A caption as tokens with the things its graph names, and what is needed to change words in it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from preprocessing.captions.adversarial.grammar import article, is_plural
from preprocessing.captions.graph import Relation, SceneGraph, SceneObject

Frame = Literal["indefinite", "plural", "bare", "definite"]
"""The surroundings of a noun, which decide on the nouns that fit: after "a"; many; nothing before it; "the"."""

Edit = tuple[int, int, Sequence[str]]
"""The tokens from the first position up to the second, at least one, become these words, at least one."""

_INDEFINITE = frozenset(("a", "an", "one", "another", "each", "every"))
_DEFINITE = frozenset(["the", "this", "that", "these", "those", "his", "her", "its", "their", "my", "your", "our"])


@dataclass(frozen=True, slots=True)
class TokenizedCaption:
    """A caption with its graph; its id is unique in the split.

    `written` are its tokens as written, each with the blank that follows it, if any: together they are the caption.
    `tokens` are in lower case, without blanks; the graph's objects refer to them.
    """

    image_id: str
    caption_id: str
    written: tuple[str, ...]
    graph: SceneGraph
    tokens: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(token.rstrip().lower() for token in self.written))
        for thing in self.graph.objects:
            if thing.word not in self.tokens[thing.start : thing.end]:
                raise ValueError(
                    f"caption {self.caption_id!r}: the noun {thing.word!r} is not among its tokens {thing.start} to "
                    f"{thing.end} ({self.text!r}): give the tokens that the graph was made from"
                )

    @property
    def text(self) -> str:
        """Return the caption."""
        return "".join(self.written)


def plain(text: str) -> str:
    """Return a text as it is compared with others: without case and blanks, which differ between true captions."""
    return text.lower().replace(" ", "")


def different(texts: Iterable[str | None], true_texts: Collection[str], count: int) -> tuple[str, ...]:
    """Return the first ``count`` different texts that are not true ones; None stands for a change without a text."""
    found: dict[str, None] = {}
    for text in texts:
        if text is not None and plain(text) not in true_texts:
            found[text] = None
        if len(found) == count:
            break
    return tuple(found)


def rewrite(caption: TokenizedCaption, edits: Iterable[Edit]) -> str:
    """Change words in positions that do not overlap, and nothing else but that "a" and "an" fit what follows."""
    changed: list[str] = []
    done = 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        changed.extend(caption.written[done:start])
        first = len(changed)
        last = caption.written[end - 1]
        changed.extend(word + " " for word in replacement[:-1])
        changed.append(replacement[-1] + last[len(last.rstrip()) :])
        if caption.written[start][0].isupper():
            changed[first] = changed[first][0].upper() + changed[first][1:]
        following = caption.written[end : end + 1]
        changed.extend(following)  # an article at the edit's end agrees with it
        _agree(changed, first - 1, len(changed) - 1)
        del changed[len(changed) - len(following) :]
        done = end
    return "".join([*changed, *caption.written[done:]])


def _agree(written: list[str], first: int, end: int) -> None:
    for i in range(max(first, 0), end):
        word = written[i].rstrip()
        if word.lower() in ("a", "an"):
            fitting = article(written[i + 1].lower())
            written[i] = (fitting.capitalize() if word[0].isupper() else fitting) + written[i][len(word) :]


def noun_span(caption: TokenizedCaption, thing: SceneObject) -> tuple[int, int]:
    """Return the first token of the noun with its compounds, and the token after it; complete words as written."""
    head = max(i for i in range(thing.start, thing.end) if caption.tokens[i] == thing.word)
    phrase = thing.phrase.split()
    first = head + 1 - len(phrase)
    if first >= thing.start and list(caption.tokens[first : head + 1]) == phrase:
        return _whole_words(caption, first, head + 1)
    return _whole_words(caption, head, head + 1)


def _whole_words(caption: TokenizedCaption, start: int, end: int) -> tuple[int, int]:
    """Widen a span to the words in which it is written: the noun of "t-shirt" may be "shirt" to the parser."""

    def is_inside_word(position: int) -> bool:
        around = caption.tokens[position - 1 : position + 1]
        return caption.written[position - 1] == caption.written[position - 1].rstrip() and all(
            token == "-" or token.isalnum() for token in around
        )

    while start > 0 and is_inside_word(start):
        start -= 1
    while end < len(caption.tokens) and is_inside_word(end):
        end += 1
    return start, end


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
    """Return where words stand in a row between two positions, widened to complete words; None unless exactly once."""
    wanted = words.replace("-", " - ").split()
    positions = [i for i in range(start, end - len(wanted) + 1) if list(caption.tokens[i : i + len(wanted)]) == wanted]
    return _whole_words(caption, positions[0], positions[0] + len(wanted)) if wanted and len(positions) == 1 else None


def relation_span(caption: TokenizedCaption, relation: Relation) -> tuple[int, int] | None:
    """Return the position of a relation's words: between its things, or else anywhere; None unless one."""
    subject, other = (caption.graph.objects[i] for i in (relation.subject, relation.object))
    between = find_words(caption, relation.words, subject.end, other.start)
    return between or find_words(caption, relation.words, 0, len(caption.tokens))
