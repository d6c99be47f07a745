"""Phrases that are one word in meaning: "a group of" counts, "in front of" and "next to" are prepositions."""

from dataclasses import dataclass, field

from preprocessing.captions.scene_graph.lexicon import (
    ABSTRACT_PHRASES,
    BARE_PLACES,
    MASS_PHRASES,
    PLACE_NOUNS,
    QUANTIFIER_NOUNS,
    QUANTIFIERS,
    RELATIONAL,
    word_set,
)
from preprocessing.captions.scene_graph.tree import Tree

QUANTIFIER = "quantifier"
"""Label of the head of "a group of people" once "people" has taken its place."""

_PHRASE_NOUNS = frozenset(noun for _, noun, _ in ABSTRACT_PHRASES)
_PREMODIFIERS = frozenset({"det", "amod", "nummod", "compound", "advmod", "nmod:poss", "fixed"})
_AFTER_ADVERB = frozenset({"from", "of", "to"})
# Before the name of a part they lead along it: "down the side of a hill" is at its side.
_WHICH_PART = word_set("far left lower near opposite other right upper very")
_OVER = frozenset({"off", "over", "to"})
_PATHS = frozenset({"off", "behind", "from", "down", "along", "up", "over"})
_OBLIQUES = frozenset({"nmod", "obl"})
_ADVERBIAL = frozenset({"amod", "advmod", "acl", "xcomp", "advcl", "dep"})
_ADJECTIVE = frozenset({"amod"})
_CLAUSE = frozenset({"nsubj", "nsubj:pass", "cop"})


@dataclass(slots=True)
class _Changes:
    successors: dict[int, int] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    staying: set[int] = field(default_factory=set)


def collapse(tree: Tree) -> None:
    """Let the noun take the place of the phrase before it.

    "a group of people" becomes "people" with the quantifier "group"; "in front of a house", "next to a house" become
    "house" with a preposition of several words. Places without a noun ("on top") become adverbs.
    """
    changes, changed = _Changes(), False
    for token, lemma in enumerate(tree.lemmas):
        if not tree.children[token]:
            changed = _join_next_to(tree, token) or changed
            continue
        if lemma in PLACE_NOUNS or lemma in _PHRASE_NOUNS:
            if _place(tree, token, changes) or _quantifier(tree, token, changes):
                continue
        elif _quantifier(tree, token, changes):
            continue
        if tree.upos[token] in ("ADJ", "ADV", "ADP"):
            _relational(tree, token, changes)
    if changed:
        tree.link()
    if changes.successors:
        tree.promote(changes.successors, changes.labels, changes.staying)


def _complement(tree: Tree, token: int) -> tuple[int, list[int]] | None:
    """The noun with a preposition that follows directly upon a token, and the tokens of that preposition."""
    for child in tree.children[token]:
        if child > token and tree.labels[child] in _OBLIQUES:
            case = [c for c in tree.children[child] if tree.labels[c] == "case" and token < c < child]
            return (child, case) if case else None
    return None


def _quantifier(tree: Tree, token: int, changes: _Changes) -> bool:
    lemma, upos = tree.lemmas[token], tree.upos[token]
    if lemma == "part" and (tree.has_child(token, _ADJECTIVE) or "Number=Plur" in tree.features[token]):
        return False  # "other parts of the house"
    counting = lemma in QUANTIFIER_NOUNS if upos == "NOUN" else upos == "NUM" or lemma in QUANTIFIERS
    if not counting and lemma != "body":
        return False
    found = _complement(tree, token)
    if found is None:
        return False
    inner, case = found
    if not counting and (lemma, tree.lemmas[inner]) not in MASS_PHRASES:
        return False
    if tree.upos[inner] not in ("NOUN", "PROPN") or [tree.lemmas[c] for c in case] != ["of"]:
        return False
    for child in tree.children[token]:
        if tree.labels[child] in _PREMODIFIERS:
            changes.staying.add(child)
    tree.heads[case[0]], tree.labels[case[0]] = token, "fixed"
    changes.staying.add(case[0])
    changes.successors[token], changes.labels[token] = inner, QUANTIFIER
    return True


def _is_described_part(tree: Tree, token: int) -> bool:
    """Return whether a part is a thing of its own: "the vertical side of a rock", "a tank top"; not "the left side"."""
    labels = ("amod", "compound")
    described = [c for c in tree.children[token] if tree.labels[c] in labels and tree.lemmas[c] not in _WHICH_PART]
    return bool(described) or "Number=Plur" in tree.features[token]


def _place(tree: Tree, token: int, changes: _Changes) -> bool:
    lemma = tree.lemmas[token]
    if _is_described_part(tree, token):
        return False
    before = [tree.lemmas[c] for c in tree.children[token] if tree.labels[c] == "case" and c < token]
    if not before:
        return False
    found = _complement(tree, token)
    over = lemma == "side" and before[-1] in _OVER and tree.child(token, "det") is not None
    if found is None and lemma in BARE_PLACES and not over:
        tree.labels[token] = "advmod"
    if found is None:
        return False
    inner, case = found
    after = tree.lemmas[case[0]]
    located = lemma in PLACE_NOUNS and after == "of" and before[-1] not in _PATHS
    if not located and (before[-1], lemma, after) not in ABSTRACT_PHRASES:
        return False
    changes.staying.update(c for c in tree.children[token] if tree.labels[c] in _PREMODIFIERS)
    changes.successors[token], changes.labels[token] = inner, "case"
    return True


def _relational(tree: Tree, token: int, changes: _Changes) -> None:
    """Find "next to", "full of", and any adverb directly before its preposition: "back into"."""
    found = _complement(tree, token)
    if found is None:
        return
    inner, _ = found
    adverb = tree.upos[token] in ("ADV", "ADP") and tree.labels[token] == "advmod"
    if tree.lemmas[token] not in RELATIONAL and (not adverb or tree.lemmas[token] in ("here", "there")):
        return
    if tree.labels[token] in _ADVERBIAL and not tree.has_child(token, _CLAUSE):
        tree.labels[token] = "obl"
    changes.staying.update(c for c in tree.children[token] if tree.labels[c] == "advmod")
    changes.successors[token], changes.labels[token] = inner, "case"


def _join_next_to(tree: Tree, token: int) -> bool:
    """Join "next" to the "to" behind it where a parser hangs the noun on the verb, not on "next"."""
    if tree.lemmas[token] not in RELATIONAL or tree.labels[token] != "advmod" or token + 1 >= len(tree.heads):
        return False
    noun = tree.heads[token + 1]
    if tree.labels[token + 1] != "case" or tree.lemmas[token + 1] not in _AFTER_ADVERB or noun <= token:
        return False
    if tree.heads[noun] != tree.heads[token]:
        return False
    tree.heads[token], tree.labels[token] = noun, "case"
    return True
