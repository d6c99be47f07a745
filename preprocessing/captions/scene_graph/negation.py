"""Negation: what a caption says is not there."""

from __future__ import annotations

from preprocessing.captions.scene_graph.lexicon import word_set
from preprocessing.captions.scene_graph.tree import Tree

_NOT = word_set("not n't n’t never")
_POSSESSION = word_set("wear have carry hold use")
_OBJECTS = frozenset({"obj", "conj"})


def is_denied(tree: Tree, token: int) -> bool:
    """Return whether a verb, adjective or noun is said not to apply: "not wearing", "without holding"."""
    return any(
        tree.words[child] in _NOT or (tree.labels[child] == "mark" and tree.lemmas[child] == "without")
        for child in tree.children[token]
    )


def is_absent(tree: Tree, noun: int) -> bool:
    """Return whether a noun names what is not there: "no people", "without a hat", "not wearing a hat or shoes"."""
    lemmas, labels = tree.lemmas, tree.labels
    for child in tree.children[noun]:
        if (labels[child] == "det" and lemmas[child] == "no") or (labels[child] == "case" and lemmas[child] == "without"):
            return True
    head = tree.heads[noun]
    if head < 0 or labels[noun] not in _OBJECTS:
        return False
    if labels[noun] == "conj":
        return tree.upos[head] == "NOUN" and tree.child(noun, "det", "nummod", "case") is None and is_absent(tree, head)
    return lemmas[head] in _POSSESSION and is_denied(tree, head)
