"""Tokens that name things and the phrases that they head; negation, which says what is not there."""

from itertools import pairwise

from preprocessing.captions.scene_graph.collapse import QUANTIFIER
from preprocessing.captions.scene_graph.lexicon import LEXICON
from preprocessing.captions.scene_graph.tree import DENIALS, NOUNS, OWN_DETERMINERS, Tree
from preprocessing.captions.wordnet.taxonomy import load_taxonomy

# Roles in which a noun is part of another word's phrase, or a measure ("this morning", "three miles").
_NO_THING = frozenset(
    [
        *("advmod", "amod", "aux", "aux:pass", "case", "cc", "compound", "compound:prt", "cop", "det", "discourse"),
        *("expl", "fixed", "flat", "goeswith", "mark", "nummod", "obl:unmarked", "punct", QUANTIFIER, "reparandum"),
    ]
)
_NOMINAL_ROLES = frozenset({"root", "nsubj", "nsubj:pass", "obj", "iobj", "obl", "obl:agent", "nmod", "dep"})
_NAME_PARTS = frozenset({"compound", "flat", "goeswith"})
_BEFORE_NOUN = frozenset(
    {"det", "amod", "nummod", "compound", "flat", "goeswith", "nmod:poss", "advmod", "appos", QUANTIFIER}
)


def find_objects(tree: Tree, role: list[str]) -> list[int]:
    """Return the tokens that head the noun phrases of a caption, ascending; `role` has each token's label.

    These are nouns and names that are not part of another word, and adjectives in a noun's place ("the elderly", "a
    child and adult"). Pronouns are not among them, nor are sports that are played and what is said not to be there.
    """
    found = []
    for token, upos in enumerate(tree.upos):
        if upos in NOUNS:
            if role[token] in _NO_THING or tree.lemmas[token] in LEXICON["non_things"] or tree.words[token] == "-":
                continue
            if not (is_hyphenated(tree, token) or is_sport(tree, token) or is_absent(tree, token)):
                found.append(token)
        elif upos == "ADJ" and role[token] in _NOMINAL_ROLES and _is_nominalised(tree, token):
            found.append(token)
    return found


def is_sport(tree: Tree, token: int) -> bool:
    """Return whether it tells what is played: "tennis" of "play tennis"."""
    played = tree.labels[token] == "obj" and tree.heads[token] >= 0 and tree.lemmas[tree.heads[token]] == "play"
    return played and tree.lemmas[token] in LEXICON["sports"]


def is_hyphenated(tree: Tree, token: int) -> bool:
    """Return whether it is the first part of a word like "snow-covered"."""
    return tree.heads[token] == token + 2 and tree.words[token + 1] == "-"


def _is_nominalised(tree: Tree, token: int) -> bool:
    lemma, head = tree.lemmas[token], tree.heads[token]
    if lemma in LEXICON["non_things"] or tree.is_clause(token):
        return False
    if tree.has_child(token, {"det"}):
        return True
    in_place = tree.labels[token] == "obj" or (tree.labels[token] == "conj" and tree.is_noun(head))
    return in_place and lemma not in LEXICON["colours"] and "noun" in load_taxonomy().kinds(lemma)


def is_property(tree: Tree, token: int) -> bool:
    """Return whether a compounded word is a property, as "orange" of "orange shirt", rather than a part of the name.

    So are an adjective that is tagged as a noun ("murky water") and "off-road" of "off-road vehicles".
    """
    if tree.upos[token] == "ADJ" or tree.lemmas[token] in LEXICON["colours"] or tree.lemmas[token] == "hind":
        return True
    start = modifier_start(tree, token)
    if start < token:
        return not tree.is_noun(start)
    kinds = load_taxonomy().kinds(tree.words[token])
    return tree.upos[token] == "NOUN" and "adjective" in kinds and "noun" not in kinds


def modifier_start(tree: Tree, token: int) -> int:
    """Return the first part of a word with hyphens, by its last one: "black" of "black-and-white"."""
    while token >= 2 and tree.words[token - 1] == "-":
        token -= 2
    return token


def hyphenated_word(tree: Tree, token: int) -> str:
    """Return the word with all parts before it that hyphens join to it, or should ("long haired")."""
    before = part_before(tree, token)
    word = "".join(tree.words[modifier_start(tree, token) : token + 1])
    return word if before < 0 else f"{tree.words[before]}-{word}"


def part_before(tree: Tree, token: int) -> int:
    """Return the word that a missing hyphen would join to "haired" or "sized", or -1."""
    before = token - 1
    if before < 0 or tree.words[token] not in LEXICON["of_parts"]:
        return -1
    word = tree.words[before]
    modifies = tree.labels[before] in ("amod", "compound") and word != "-" and not word.endswith("ly")
    return before if modifies and tree.heads[before] in (token, tree.heads[token]) else -1


def name_tokens(tree: Tree, token: int) -> list[int]:
    """Return a noun with the tokens that are compounded with it, ascending: "tennis rackets", "new york city"."""
    parts = [token]
    for part in parts:
        for child in tree.children[part]:
            label = tree.labels[child]
            if label in _NAME_PARTS and not (label == "compound" and is_property(tree, child)):
                parts.append(child)
    return sorted(parts)


def join_name(tree: Tree, parts: list[int], words: list[str]) -> str:
    """Return the words of a name with spaces between them, and with the hyphens that it is written with ("t-shirt")."""
    text = words[parts[0]]
    for before, part in pairwise(parts):
        hyphenated = part == before + 2 and tree.words[before + 1] == "-"
        text += ("-" if hyphenated else " ") + words[part]
    return text


def phrase_start(tree: Tree, token: int) -> int:
    """Return the first token of a noun phrase: its determiner, owner, quantifier or first adjective, else the noun."""
    parts = [child for child in tree.children[token] if child < token and tree.labels[child] in _BEFORE_NOUN]
    for part in parts:
        for child in tree.children[part]:
            if child < token:
                parts.append(child)
    return min(parts, default=token)


_NOT = DENIALS - {"no", "without"}
_DENYING = {"no": "det", "without": "case"}
_POSSESSION = frozenset({"wear", "have", "carry", "hold", "use"})


def is_denied(tree: Tree, token: int) -> bool:
    """Return whether a verb, adjective or noun is said not to apply: "not wearing", "without holding", "is not red"."""
    words = tree.words
    if not tree.denies:
        return False
    for child in tree.children[token]:
        if words[child] in _NOT or (words[child] == "without" and tree.labels[child] == "mark"):
            return True
    head = tree.heads[token] if tree.labels[token] == "xcomp" else -1
    return head >= 0 and any(words[child] in _NOT for child in tree.children[head])


def is_absent(tree: Tree, noun: int) -> bool:
    """Return whether a noun names what is not there: "no people", "without a hat", "not wearing a hat or shoes"."""
    if not tree.denies:
        return False
    while tree.labels[noun] == "conj" and tree.heads[noun] >= 0 and not tree.has_child(noun, OWN_DETERMINERS):
        if _is_denied_noun(tree, noun):
            return True
        noun = tree.heads[noun]
    return _is_denied_noun(tree, noun)


def _is_denied_noun(tree: Tree, noun: int) -> bool:
    lemmas, labels, head = tree.lemmas, tree.labels, tree.heads[noun]
    for child in tree.children[noun]:
        if _DENYING.get(lemmas[child]) == labels[child]:
            return True
    if head < 0:
        return False
    if labels[noun] == "nsubj":  # "without [a shirt on]" read as a clause
        return any((labels[child], lemmas[child]) == ("mark", "without") for child in tree.children[head])
    return labels[noun] == "obj" and lemmas[head] in _POSSESSION and is_denied(tree, head)
