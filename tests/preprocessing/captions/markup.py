"""Captions with their graphs, written by hand: brackets around noun phrases, braces around attributes.

``[a {black} dog] (rides|ride) [two bikes|bike]``: behind a stroke stands the base form, where it differs; round
brackets hold a relation of the phrase before and the phrase after. ``{two#}`` is a numeral, ``{smiling*}`` a
participle, ``{group~}`` a quantifier. A line below joins compounded nouns: ``[a tennis_racket]``. What begins with
punctuation is written without a blank before it, and so is what follows a hyphen: ``[a t - shirt]``.
"""

import itertools
import re

from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.graph import Attribute, AttributeKind, Relation, SceneGraph, SceneObject

_PARTS = re.compile(r"\[[^]]*\]|\([^)]*\)|\S+")
_KINDS: dict[str, AttributeKind] = {"#": "numeral", "*": "participle", "~": "quantifier"}


def graph(marked: str) -> SceneGraph:
    return caption(marked).graph


def image(*marked: str, image_id: str = "image") -> list[TokenizedCaption]:
    return [caption(text, f"{image_id}#{i}", image_id) for i, text in enumerate(marked)]


def caption(marked: str, caption_id: str = "image#0", image_id: str = "image") -> TokenizedCaption:
    tokens: list[str] = []
    objects: list[SceneObject] = []
    relations: list[tuple[int, str, str]] = []
    for part in _PARTS.findall(marked):
        if part.startswith("["):
            objects.append(_noun_phrase(part[1:-1], tokens))
        elif part.startswith("("):
            words, _, lemma = part[1:-1].partition("|")
            tokens += words.split()
            relations.append((len(objects) - 1, words, lemma or words))
        else:
            tokens.append(part)
    found = tuple(Relation(subject, subject + 1, words, lemma) for subject, words, lemma in relations)
    return TokenizedCaption(image_id, caption_id, tuple(written(tokens)), SceneGraph(tuple(objects), found))


def written(tokens: list[str]) -> list[str]:
    """Tokens with the blanks behind them."""
    glued = [not following[0].isalnum() or token == "-" for token, following in itertools.pairwise(tokens)]
    return [token + " " * (not is_glued) for token, is_glued in zip(tokens, [*glued, True], strict=bool(tokens))]


def _noun_phrase(marked: str, tokens: list[str]) -> SceneObject:
    start = len(tokens)
    attributes = []
    *before, last = marked.split()
    for word in before:
        if word.startswith("{"):
            word, _, lemma = word[1:-1].partition("|")
            kind = _KINDS.get(word[-1], "adjective")
            word = word.rstrip("#*~")
            attributes.append(Attribute(word, lemma or word, kind))
        tokens.append(word)
    phrase, _, lemma = last.partition("|")
    nouns = phrase.split("_")
    tokens += nouns
    return SceneObject(
        nouns[-1], lemma or nouns[-1], " ".join(nouns), start, len(tokens), is_scene=False, attributes=tuple(attributes)
    )
