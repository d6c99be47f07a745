"""Tokens that name things, and the phrases that they head."""

from __future__ import annotations

from itertools import pairwise

from preprocessing.captions.scene_graph.collapse import QUANTIFIER
from preprocessing.captions.scene_graph.lexicon import COLOURS, MATERIALS, NON_THINGS, SPORTS, word_set
from preprocessing.captions.scene_graph.negation import is_absent
from preprocessing.captions.scene_graph.tree import Tree
from preprocessing.captions.wordnet.taxonomy import load_taxonomy

# Roles in which a noun is part of another word's phrase, or a measure ("this morning", "three miles").
_NO_THING = word_set(
    """
    advmod amod aux aux:pass case cc compound compound:prt cop det discourse expl fixed flat goeswith mark nummod
    obl:unmarked punct quantifier reparandum
    """
)
_NOMINAL_ROLES = frozenset({"root", "nsubj", "nsubj:pass", "obj", "iobj", "obl", "obl:agent", "nmod", "dep"})
_CLAUSE = frozenset({"nsubj", "nsubj:pass", "cop"})
_DESCRIBING = frozenset({"ADJ", "ADV", "ADP", "NUM", "VERB"})
_NAME_PARTS = frozenset({"compound", "flat", "goeswith"})
_BEFORE_NOUN = frozenset(
    {"det", "amod", "nummod", "compound", "flat", "goeswith", "nmod:poss", "advmod", "appos", QUANTIFIER}
)


def roles(tree: Tree) -> list[str]:
    """The label of each token, for conjuncts that of the first one: in "black and white dog", "white" is an "amod"."""
    if "conj" not in tree.labels:
        return tree.labels
    found: list[str] = [""] * len(tree.labels)
    for start in range(len(found)):
        path, token = [], start
        while not found[token] and tree.labels[token] == "conj" and tree.heads[token] >= 0:
            path.append(token)
            token = tree.heads[token]
        found[token] = found[token] or tree.labels[token]
        for conjunct in path:
            found[conjunct] = found[token]
    return found


def find_objects(tree: Tree, role: list[str]) -> list[int]:
    """The tokens that head the noun phrases of a caption, ascending.

    These are nouns and names that are not part of another word, and adjectives in a noun's place with an article ("the
    elderly"). Pronouns are not among them, nor are sports that are played and what is said not to be there.

    Args:
        tree: the caption.
        role: from :func:`roles`.
    """
    found = []
    for token, upos in enumerate(tree.upos):
        if upos in ("NOUN", "PROPN"):
            named = role[token] not in _NO_THING and tree.lemmas[token] not in NON_THINGS and tree.words[token] != "-"
            if named and not (is_hyphenated(tree, token) or is_sport(tree, token) or is_absent(tree, token)):
                found.append(token)
        elif upos == "ADJ" and role[token] in _NOMINAL_ROLES and _is_nominalised(tree, token):
            found.append(token)
    return found


def is_hyphenated(tree: Tree, token: int) -> bool:
    """Return whether it is the first part of a word like "snow-covered"."""
    return tree.heads[token] == token + 2 and tree.words[token + 1] == "-"


def is_sport(tree: Tree, token: int) -> bool:
    """Return whether it tells what is played: "tennis" of "play tennis"."""
    played = tree.labels[token] == "obj" and tree.heads[token] >= 0 and tree.lemmas[tree.heads[token]] == "play"
    return played and tree.lemmas[token] in SPORTS


def _is_nominalised(tree: Tree, token: int) -> bool:
    if tree.lemmas[token] in NON_THINGS or tree.has_child(token, _CLAUSE):
        return False
    return tree.child(token, "det") is not None


def is_property(tree: Tree, token: int) -> bool:
    """Return whether a compounded word tells what a thing is like or made of rather than being a part of its name.

    So do "orange" of "orange shirt", "brick" of "brick wall" and "off-road" of "off-road vehicle".
    """
    if tree.upos[token] == "ADJ" or tree.lemmas[token] in COLOURS:
        return True
    start, end = hyphenated(tree, token)
    if end - start > 1:
        return end <= tree.heads[token] and any(tree.upos[part] in _DESCRIBING for part in range(start, end, 2))
    return tree.lemmas[token] in MATERIALS and _is_made(tree.lemmas[tree.heads[token]])


def _is_made(noun: str) -> bool:
    """Return whether a noun names a thing or a part of nature, not a person or an activity as "rock climber" does."""
    taxonomy = load_taxonomy()
    return any(taxonomy.same_category(noun, other) for other in ("wall", "hill", "arch", "surface"))


def hyphenated(tree: Tree, token: int) -> tuple[int, int]:
    """The span of a word that is written with hyphens, here those around one of its parts: "long-haired"."""
    start, end, words, heads = token, token + 1, tree.words, tree.heads
    own = (token, heads[token])
    while start > 1 and words[start - 1] == "-" and heads[start - 2] in own:
        start -= 2
    while end + 1 < len(words) and words[end] == "-" and heads[end + 1] in own:
        end += 2
    return start, end


def name_tokens(tree: Tree, token: int) -> list[int]:
    """A noun with the tokens that are compounded with it, ascending: "tennis rackets", "new york city"."""
    parts, waiting = [token], [token]
    while waiting:
        head = waiting.pop()
        for child in tree.children[head]:
            label = tree.labels[child]
            if label in _NAME_PARTS and not (label == "compound" and is_property(tree, child)):
                parts.append(child)
                waiting.append(child)
    return sorted(parts)


def join_name(tree: Tree, parts: list[int], words: list[str]) -> str:
    """The words of a name with spaces between them, and with the hyphens that it is written with ("t-shirt")."""
    text = words[parts[0]]
    for before, part in pairwise(parts):
        hyphenated = part == before + 2 and tree.words[before + 1] == "-"
        text += ("-" if hyphenated else " ") + words[part]
    return text


def phrase_start(tree: Tree, token: int) -> int:
    """The first token of a noun phrase: its determiner, owner, quantifier or first adjective, else the noun."""
    start = token
    waiting = [child for child in tree.children[token] if child < token and tree.labels[child] in _BEFORE_NOUN]
    while waiting:
        part = waiting.pop()
        start = min(start, part)
        waiting.extend(child for child in tree.children[part] if child < token)
    return start
