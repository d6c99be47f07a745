"""Negation: what a caption says is not there."""

from preprocessing.captions.scene_graph.lexicon import word_set
from preprocessing.captions.scene_graph.tree import Tree

_NOT = word_set("not n't n’t never")
_POSSESSION = word_set("wear have carry hold use")
_OWN_DETERMINERS = frozenset({"det", "nummod", "nmod:poss", "case"})


def is_denied(tree: Tree, token: int) -> bool:
    """Return whether a verb, adjective or noun is said not to apply: "not wearing", "without holding", "is not red"."""
    words = tree.words
    for child in tree.children[token]:
        if words[child] in _NOT or (words[child] == "without" and tree.labels[child] == "mark"):
            return True
    head = tree.heads[token] if tree.labels[token] == "xcomp" else -1
    return head >= 0 and any(words[child] in _NOT for child in tree.children[head])


def is_absent(tree: Tree, noun: int) -> bool:
    """Return whether a noun names what is not there: "no people", "without a hat", "not wearing a hat or shoes"."""
    while tree.labels[noun] == "conj" and tree.heads[noun] >= 0 and not tree.has_child(noun, _OWN_DETERMINERS):
        if _is_denied_noun(tree, noun):
            return True
        noun = tree.heads[noun]
    return _is_denied_noun(tree, noun)


def _is_denied_noun(tree: Tree, noun: int) -> bool:
    lemmas, labels, head = tree.lemmas, tree.labels, tree.heads[noun]
    for child in tree.children[noun]:
        if (labels[child], lemmas[child]) in (("det", "no"), ("case", "without")):
            return True
    if head < 0:
        return False
    if labels[noun] == "nsubj":  # "without [a shirt on]" read as a clause
        return any((labels[child], lemmas[child]) == ("mark", "without") for child in tree.children[head])
    return labels[noun] == "obj" and lemmas[head] in _POSSESSION and is_denied(tree, head)
