"""Attributes of a caption's objects: adjectives, participles, numerals and quantifiers."""

from preprocessing.captions.graph import Attribute, AttributeKind
from preprocessing.captions.scene_graph.arguments import Arguments
from preprocessing.captions.scene_graph.collapse import QUANTIFIER
from preprocessing.captions.scene_graph.lexicon import LEXICON
from preprocessing.captions.scene_graph.objects import (
    hyphenated_word,
    is_denied,
    is_hyphenated,
    is_property,
    part_before,
)
from preprocessing.captions.scene_graph.tree import SUBJECTS, Tree
from preprocessing.captions.wordnet.taxonomy import load_taxonomy

_COMPLEMENTS = frozenset({"obj", "iobj", "xcomp", "ccomp"})
_OBLIQUES = frozenset({"obl", "obl:agent", "nmod"})
_PASSIVE = frozenset({"nsubj:pass", "aux:pass"})
_ACTIVE = SUBJECTS | {"aux"}
_PREDICATIVE = frozenset({"xcomp", "acl", "acl:relcl", "advcl", "conj", "parataxis"})
_MODIFIERS = frozenset({"amod", "compound", "nummod", "det", QUANTIFIER})
_NOMINAL = frozenset({"NOUN", "PROPN", "PRON", "DET", "VERB"})
_PREMODIFYING = frozenset({"amod", "compound", "flat", "det", "nummod", "case", "fixed", "advmod"})


def find_attributes(tree: Tree, role: list[str], heads: list[int], arguments: Arguments) -> list[tuple[Attribute, ...]]:
    """Return each object's attributes, in the order of the caption and each once; `heads` are the objects' tokens."""
    found: list[dict[int, AttributeKind]] = [{} for _ in heads]
    for noun, of_noun in zip(heads, found, strict=True):
        for child in tree.children[noun]:
            if tree.labels[child] in _MODIFIERS:
                _modifier(tree, child, of_noun)
    for token, upos in enumerate(tree.upos):
        if upos == "ADJ":
            if _is_predicative(tree, role, token) and not arguments.is_object(token):
                for index in arguments.subjects(token):
                    found[index][token] = "adjective"
        elif upos == "VERB" and _is_state(tree, role, token):
            for index in arguments.subjects(token):
                found[index][token] = "participle"
    return [_in_order(tree, tokens) if tokens else () for tokens in found]


def _in_order(tree: Tree, tokens: dict[int, AttributeKind]) -> tuple[Attribute, ...]:
    attributes: dict[tuple[str, AttributeKind], Attribute] = {}
    for token in sorted(tokens):
        word, kind = hyphenated_word(tree, token), tokens[token]
        lemma = word if kind == "participle" or word != tree.words[token] else tree.lemmas[token]
        attributes.setdefault((lemma, kind), Attribute(word, lemma, kind))
    return tuple(attributes.values())


def _modifier(tree: Tree, child: int, found: dict[int, AttributeKind]) -> None:
    """Add a child of a noun, with what is conjoined to it, if it is an attribute."""
    label, lemma = tree.labels[child], tree.lemmas[child]
    if label == "amod" or (label == "compound" and (is_property(tree, child) or _is_material(tree, child))):
        waiting = [child]
        while waiting:
            token = waiting.pop()
            if not _belongs_to_next(tree, token):
                _adjective(tree, token, found)
            waiting += tree.children_with(token, ("conj",))
    elif label == "nummod":
        found[child] = "quantifier" if lemma in LEXICON["quantifiers"] else "numeral"
    elif label == QUANTIFIER:
        found[child] = "numeral" if tree.upos[child] == "NUM" else "quantifier"
    elif label == "det" and lemma in LEXICON["quantifiers"]:
        found[child] = "quantifier"


def _adjective(tree: Tree, token: int, found: dict[int, AttributeKind]) -> None:
    lemma = tree.lemmas[token]
    if lemma in LEXICON["quantifiers"]:
        found[token] = "quantifier"
    elif tree.upos[token] == "NUM":
        found[token] = "numeral"
    elif tree.upos[token] == "VERB":
        if "VerbForm=Fin" not in tree.features[token] and not _names_others(tree, token):
            found[token] = "participle"
    elif lemma not in LEXICON["non_properties"]:
        found[token] = "adjective"


def _is_material(tree: Tree, token: int) -> bool:
    is_material = tree.lemmas[token] in LEXICON["materials"] and tree.words[token + 1] != "-"
    return is_material and tree.lemmas[tree.heads[token]] not in LEXICON["not_made"]


def _belongs_to_next(tree: Tree, token: int) -> bool:
    """Return whether it is told with the word behind it: "light blue", "long-haired", "brightly colored"."""
    word, behind = tree.words[token], token + 1
    if word.endswith("ly") and "adjective" not in load_taxonomy().kinds(word):
        return True
    if behind == len(tree.words):
        return False
    shade = tree.lemmas[token] in LEXICON["shades"] and tree.lemmas[behind] in LEXICON["colours"]
    hyphen = tree.words[behind] == "-" and behind + 1 < len(tree.words)
    return shade or hyphen or part_before(tree, behind) == token


def _is_predicative(tree: Tree, role: list[str], token: int) -> bool:
    """Return whether an adjective is said of a subject: "is red", "looks happy", "a man asleep"."""
    if tree.lemmas[token] in LEXICON["non_properties"] or role[token] in _PREMODIFYING or is_denied(tree, token):
        return False
    return tree.labels[token] in _PREDICATIVE or tree.has_child(token, SUBJECTS)


def _is_state(tree: Tree, role: list[str], token: int) -> bool:
    """Return whether a participle describes its subject and names no other object: "a man smiling", "it is parked"."""
    if "VerbForm=Part" not in tree.features[token]:
        return False
    is_state = tree.has_child(token, _PASSIVE) or (role[token] == "acl" and not tree.has_child(token, _ACTIVE))
    return is_state and not (_names_others(tree, token) or is_denied(tree, token))


def _names_others(tree: Tree, token: int) -> bool:
    """Return whether a verb has dependents, other than its subject, that name objects or continue it."""
    obliques = tree.children_with(token, _OBLIQUES)
    return tree.has_child(token, _COMPLEMENTS) or any(
        tree.upos[child] in _NOMINAL and not is_hyphenated(tree, child) for child in obliques
    )
