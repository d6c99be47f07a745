"""Parses written by hand, short enough to read, and graphs in words."""

from __future__ import annotations

from collections import Counter

from spacy.tokens import Doc
from spacy.vocab import Vocab

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph.tree import Tree, TreeReader

_TAGS = {
    "ADJ": "JJ",
    "ADP": "IN RP",
    "ADV": "RB WRB",
    "CCONJ": "CC",
    "DET": "DT",
    "NOUN": "NN NNS",
    "NUM": "CD",
    "PART": "POS TO",
    "PRON": "EX PRP PRP$ WDT WP WP$",
    "PROPN": "NNP",
    "PUNCT": "HYPH .",
    "VERB": "VB VBD VBG VBN VBP VBZ",
}
_UPOS = {tag: upos for upos, tags in _TAGS.items() for tag in tags.split()}
_VOCAB = Vocab()


def parsed(words: str, arcs: str) -> Tree:
    """A parsed caption.

    Args:
        words: "word/TAG", or "word~lemma/TAG" where the lemma differs; "word/TAG=UPOS" where the part of speech does.
        arcs: "label>head" of each word, the head counted from 1, 0 for a root.
    """
    tokens = [item.rsplit("/", 1) for item in words.split()]
    edges = [item.rsplit(">", 1) for item in arcs.split()]
    assert len(tokens) == len(edges), f"{len(tokens)} words but {len(edges)} arcs: {words} | {arcs}"
    tags = [tag.partition("=")[0] for _, tag in tokens]
    doc = Doc(
        _VOCAB,
        words=[text.partition("~")[0] for text, _ in tokens],
        lemmas=[text.partition("~")[2] or text for text, _ in tokens],
        tags=tags,
        pos=[tag.partition("=")[2] or _UPOS[tag] for _, tag in tokens],
        heads=[int(head) - 1 if head != "0" else token for token, (_, head) in enumerate(edges)],
        deps=[label for label, _ in edges],
    )
    return TreeReader().read(doc)


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
