"""Phrases that are one word in meaning: "a group of" counts, "in front of" and "next to" are prepositions."""

from collections.abc import Collection

from preprocessing.captions.scene_graph.lexicon import ABSTRACT_PHRASES, LEXICON
from preprocessing.captions.scene_graph.tree import OBLIQUES, Tree

QUANTIFIER = "quantifier"
"""Label of the head of "a group of people" once "people" has taken its place."""

_PLACES = LEXICON["place_nouns"] | {noun for _, noun, _ in ABSTRACT_PHRASES}
_PREMODIFIERS = frozenset({"det", "amod", "nummod", "compound", "advmod", "nmod:poss", "fixed"})
_AFTER_ADVERB = frozenset({"from", "of", "to"})
# Before the name of a part they lead along it: "down the side of a hill" is at its side.
_WHICH_PART = frozenset({"far", "left", "lower", "near", "opposite", "other", "right", "upper", "very"})
_OVER = frozenset({"off", "over", "to"})
_PATHS = frozenset({"off", "behind", "from", "down", "along", "up", "over"})
_ADVERBIAL = frozenset({"amod", "advmod", "acl", "xcomp", "advcl", "dep"})


def collapse(tree: Tree) -> None:
    """Let the noun take the place of the phrase before it.

    "a group of people" becomes "people" with the quantifier "group"; "in front of a house", "next to a house" become
    "house" with a preposition of several words. Places without a noun ("on top") become adverbs.
    """
    phrases = _Phrases(tree)
    for token, children in enumerate(tree.children):
        if not children:
            if tree.labels[token] == "advmod" and tree.lemmas[token] in LEXICON["relational"]:
                phrases.join_next_to(token)
        elif tree.lemmas[token] in _PLACES and phrases.place(token):
            continue
        elif children[-1] > token and not phrases.quantifier(token):
            phrases.relational(token)
    tree.promote(phrases.successors, phrases.staying)


class _Phrases:
    """Gathers the tokens that give their place up, with those that take it, and the children that stay with them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.successors: dict[int, tuple[int, str]] = {}
        self.staying: set[int] = set()

    def place(self, token: int) -> bool:
        """Find "in front of" and its kind; a part that is a thing of its own ("a tank top") is not one."""
        tree, lemma = self._tree, self._tree.lemmas[token]
        described = any(tree.lemmas[c] not in _WHICH_PART for c in tree.children_with(token, ("amod", "compound")))
        before = [tree.lemmas[c] for c in tree.children_with(token, ("case",)) if c < token]
        if described or "Number=Plur" in tree.features[token] or not before:
            return False
        found = self._complement(token)
        if found is None:
            over = lemma == "side" and before[-1] in _OVER and tree.has_child(token, {"det"})
            if lemma in LEXICON["bare_places"] and not over:
                tree.labels[token] = "advmod"
            return False
        inner, case = found
        after = tree.lemmas[case[0]]
        located = lemma in LEXICON["place_nouns"] and after == "of" and before[-1] not in _PATHS
        if not located and (before[-1], lemma, after) not in ABSTRACT_PHRASES:
            return False
        self._give_place(token, inner, "case", _PREMODIFIERS)
        return True

    def quantifier(self, token: int) -> bool:
        """Find "a group of"; not "other parts of"."""
        tree, lemma, upos = self._tree, self._tree.lemmas[token], self._tree.upos[token]
        if lemma == "part" and (tree.has_child(token, {"amod"}) or "Number=Plur" in tree.features[token]):
            return False
        nouns = LEXICON["quantifier_nouns"]
        counting = lemma in nouns if upos == "NOUN" else upos == "NUM" or lemma in LEXICON["quantifiers"]
        found = self._complement(token) if counting or lemma == "body" else None
        if found is None:
            return False
        inner, case = found
        # A body of water is water, and a body of anything else is a body.
        of = [tree.lemmas[c] for c in case] == ["of"]
        if not (of and tree.is_noun(inner) and (counting or tree.lemmas[inner] == "water")):
            return False
        self._give_place(token, inner, QUANTIFIER, _PREMODIFIERS)
        tree.heads[case[0]], tree.labels[case[0]] = token, "fixed"
        self.staying.add(case[0])
        return True

    def relational(self, token: int) -> None:
        """Find "next to", "full of", and any adverb directly before its preposition: "back into"."""
        tree, lemma = self._tree, self._tree.lemmas[token]
        found = self._complement(token) if tree.upos[token] in ("ADJ", "ADV", "ADP") else None
        if found is None:
            return
        adverb = tree.upos[token] != "ADJ" and tree.labels[token] == "advmod" and lemma not in ("here", "there")
        if lemma in LEXICON["relational"] or adverb:
            if tree.labels[token] in _ADVERBIAL and not tree.is_clause(token):
                tree.labels[token] = "obl"
            self._give_place(token, found[0], "case", ("advmod",))

    def join_next_to(self, token: int) -> None:
        """Join "next" to the "to" behind it if a parser hangs the noun on the verb, not on "next"."""
        tree, to = self._tree, token + 1
        if to >= len(tree.heads):
            return
        noun = tree.heads[to]
        joined = tree.labels[to] == "case" and tree.lemmas[to] in _AFTER_ADVERB and noun > token
        if joined and tree.heads[noun] == tree.heads[token]:
            tree.heads[token], tree.labels[token] = noun, "case"

    def _complement(self, token: int) -> tuple[int, list[int]] | None:
        """Return the noun with a preposition that follows directly upon a token, and that preposition's tokens."""
        tree = self._tree
        noun = next((c for c in tree.children_with(token, OBLIQUES) if c > token), None)
        if noun is None:
            return None
        case = [c for c in tree.children_with(noun, ("case",)) if token < c < noun]
        return (noun, case) if case else None

    def _give_place(self, token: int, successor: int, label: str, staying: Collection[str]) -> None:
        self.staying.update(self._tree.children_with(token, staying))
        self.successors[token] = successor, label
