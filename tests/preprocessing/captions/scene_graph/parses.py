"""Parses written by hand, short enough to read, and graphs in words."""

from __future__ import annotations

from collections import Counter

from spacy.tokens import Doc
from spacy.vocab import Vocab

from preprocessing.captions.graph import SceneGraph

_UPOS = {
    "CC": "CCONJ",
    "CD": "NUM",
    "DT": "DET",
    "EX": "PRON",
    "HYPH": "PUNCT",
    "IN": "ADP",
    "JJ": "ADJ",
    "NN": "NOUN",
    "NNP": "PROPN",
    "NNS": "NOUN",
    "POS": "PART",
    "PRP": "PRON",
    "PRP$": "PRON",
    "RB": "ADV",
    "RP": "ADP",
    "TO": "PART",
    "VB": "VERB",
    "VBD": "VERB",
    "VBG": "VERB",
    "VBN": "VERB",
    "VBP": "VERB",
    "VBZ": "VERB",
    "WDT": "PRON",
    "WP": "PRON",
    "WP$": "PRON",
    "WRB": "ADV",
    ".": "PUNCT",
}
_VOCAB = Vocab()


def parsed(words: str, arcs: str) -> Doc:
    """A parsed caption.

    Args:
        words: "word/TAG", or "word~lemma/TAG" where the lemma differs; "word/TAG=UPOS" where the part of speech does.
        arcs: "label>head" of each word, the head counted from 1, 0 for a root.
    """
    tokens = [item.rsplit("/", 1) for item in words.split()]
    edges = [item.rsplit(">", 1) for item in arcs.split()]
    assert len(tokens) == len(edges), f"{len(tokens)} words but {len(edges)} arcs: {words} | {arcs}"
    tags = [tag.partition("=")[0] for _, tag in tokens]
    return Doc(
        _VOCAB,
        words=[text.partition("~")[0] for text, _ in tokens],
        lemmas=[text.partition("~")[2] or text for text, _ in tokens],
        tags=tags,
        pos=[tag.partition("=")[2] or _UPOS[tag] for _, tag in tokens],
        heads=[int(head) - 1 if head != "0" else token for token, (_, head) in enumerate(edges)],
        deps=[label for label, _ in edges],
    )


def objects(graph: SceneGraph) -> str:
    """The phrases of all objects: "man, tennis racket"."""
    return ", ".join(thing.phrase for thing in graph.objects)


def attributes(graph: SceneGraph) -> Counter[str]:
    """Attributes before their objects: "red car"."""
    return Counter(f"{attribute.lemma} {thing.lemma}" for thing in graph.objects for attribute in thing.attributes)


def relations(graph: SceneGraph) -> Counter[str]:
    """Relations in words: "man (sit on) chair"."""
    things = graph.objects
    return Counter(f"{things[r.subject].lemma} ({r.lemma}) {things[r.object].lemma}" for r in graph.relations)


def listed(text: str) -> Counter[str]:
    """Return the items of a comma-separated list."""
    return Counter(filter(None, (item.strip() for item in text.split(","))))
