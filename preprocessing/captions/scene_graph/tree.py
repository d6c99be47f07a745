"""A dependency parse as plain lists: as the rules read it, and the one way in which they change it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from preprocessing.captions.wordnet.taxonomy import load_taxonomy

if TYPE_CHECKING:
    from spacy.tokens import Doc

_NO_TOKEN = -1
_VISITED = -2

# Subtypes that the rules tell apart; any other one is cut off ("nsubj:outer" is read as "nsubj").
_KEPT_SUBTYPES = frozenset({"nsubj:pass", "obl:agent", "nmod:poss", "acl:relcl", "compound:prt", "aux:pass"})
_SCHEMES = yaml.safe_load(Path(__file__).with_name("schemes.yaml").read_text(encoding="utf-8"))
_SUBTYPES: dict[str, str] = _SCHEMES["subtypes"]
_FEATURES_OF_TAG: dict[str, list[str]] = _SCHEMES["features_of_tag"]
_ATTRIBUTES = ["HEAD", "ORTH", "LEMMA", "POS", "TAG", "DEP", "MORPH"]
_GENITIVE_MARKERS = frozenset({"'s", "'", "’s", "’"})


@dataclass(slots=True)
class Tree:
    """The tokens of a caption and how they depend on each other; each list has an entry a token, words in lower case.

    Attributes:
        upos: universal parts of speech.
        features: morphological features such as "Number=Plur".
        heads: the token it depends on, -1 at the root of a sentence. There are no cycles.
        labels: of its dependency, with the few subtypes that matter.
        sentences: the first root of its sentence.
        subtyped: the parser uses subtypes, so that a plain "obl" is not an agent.
        children: the tokens that depend on it, ascending; the inverse of ``heads``.
    """

    words: list[str]
    lemmas: list[str]
    upos: list[str]
    features: list[frozenset[str]]
    heads: list[int]
    labels: list[str]
    sentences: list[int]
    subtyped: bool
    children: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.link()

    def link(self) -> None:
        """Bring ``children`` in line with ``heads``."""
        self.children = [[] for _ in self.heads]
        for token, head in enumerate(self.heads):
            if head >= 0:
                self.children[head].append(token)

    def children_with(self, token: int, labels: Collection[str]) -> list[int]:
        """Return the children with one of these labels."""
        children = self.children[token]
        if not children:  # most tokens have none, and a list is asked for forty times a caption
            return []
        names = self.labels
        return [child for child in children if names[child] in labels]

    def has_child(self, token: int, labels: Collection[str]) -> bool:
        """Return whether a child has one of these labels."""
        names = self.labels
        for child in self.children[token]:  # noqa: SIM110  (any() takes twice as long, and this is asked most)
            if names[child] in labels:
                return True
        return False

    def is_predicate(self, token: int) -> bool:
        """Return whether it is said of a subject: a verb, or any other word with a copula or a subject of its own."""
        return self.upos[token] in ("VERB", "AUX") or self.is_clause(token)

    def is_clause(self, token: int) -> bool:
        """Return whether it has a copula or a subject of its own."""
        return self.has_child(token, _CLAUSE)

    def is_noun(self, token: int) -> bool:
        """Return whether it is a noun or a name."""
        return self.upos[token] in ("NOUN", "PROPN")

    def first_conjunct(self, token: int) -> int:
        """Return the first of the words that are conjoined with a token: "man" for "boy" in "a man and a boy"."""
        while self.labels[token] == "conj" and self.heads[token] >= 0:
            token = self.heads[token]
        return token

    def case_words(self, token: int) -> list[int]:
        """Return the tokens of its prepositions, with what belongs to them: "in front of", "on the side of"."""
        cases = self.children_with(token, ("case",))
        return sorted(cases + [part for case in cases for part in self.children_with(case, _PARTS_OF_PREPOSITION)])

    def promote(self, successors: dict[int, tuple[int, str]], staying: Collection[int]) -> None:
        """Let children take their heads' places.

        `successors` has for a token that gives its place up the child that takes it (chains are followed to the end),
        and its own label under that child. Children move to the successor, but for those that are `staying`.
        """
        if not successors:
            self.link()
            return

        def last(token: int) -> int:
            """Return the token that has a token's place in the end."""
            while token in successors:
                token, _ = successors[token]
            return token

        def gives_place(head: int, token: int) -> bool:
            return head in successors and successors[head][0] == token

        heads, old_heads, old_labels = list(self.heads), self.heads, list(self.labels)
        for token, head in enumerate(old_heads):
            if token in successors:
                heads[token], self.labels[token] = last(token), successors[token][1]
            elif gives_place(head, token):
                top = head
                while gives_place(old_heads[top], top):
                    top = old_heads[top]
                above = old_heads[top]
                heads[token] = above if top in staying or above < 0 else last(above)
                self.labels[token] = old_labels[top]
            elif head in successors and token not in staying:
                heads[token] = last(head)
        self.heads = heads
        self.link()


SUBJECTS = frozenset({"nsubj", "nsubj:pass"})
OBLIQUES = frozenset({"obl", "nmod"})
OWN_DETERMINERS = frozenset({"det", "nummod", "nmod:poss", "case"})
_CLAUSE = SUBJECTS | {"cop"}
_VERB_CHILDREN = frozenset({"nsubj", "nsubj:pass", "obj", "aux", "aux:pass"})
_PARTS_OF_PREPOSITION = frozenset({"fixed", "det", "amod", "compound", "nummod", "goeswith"})


def read_tree(doc: Doc) -> Tree:
    """Read the parse of a spaCy ``Doc``, but for the subtypes that no rule needs."""
    # As arrays: a Token object for each word and attribute takes half the time of all rules.
    columns, name = doc.to_array(_ATTRIBUTES).T.reshape(len(_ATTRIBUTES), -1), doc.vocab.strings
    words, lemmas, upos, tags, labels, morphs = ([name[key] for key in column] for column in columns[1:].tolist())
    offsets = columns[0].astype("int64").tolist()
    heads = [token + offset if offset else _NO_TOKEN for token, offset in enumerate(offsets)]
    tree = Tree(
        words=[word.lower() for word in words],
        lemmas=[lemma.lower() for lemma in lemmas],
        upos=upos,
        features=[_features(*both) for both in zip(morphs, tags, strict=True)],
        sentences=_cut_cycles(heads),
        heads=heads,
        labels=[_plain(label) for label in labels],
        subtyped=any(":" in label for label in labels),
    )
    _refine_labels(tree)
    _refine_nouns(tree, tags)
    return tree


@cache
def _features(morph: str, tag: str) -> frozenset[str]:
    return frozenset((*filter(None, morph.split("|")), *_FEATURES_OF_TAG.get(tag, ())))


@cache
def _plain(label: str) -> str:
    if label in _KEPT_SUBTYPES:
        return label
    return "root" if label == "ROOT" else _SUBTYPES.get(label, label.partition(":")[0])


def _cut_cycles(heads: list[int]) -> list[int]:
    """Make a root of one token of each cycle, as a wrong parse may have; return the root above each token."""
    roots = [_NO_TOKEN] * len(heads)
    for start in range(len(heads)):
        path, token = [], start
        while roots[token] == _NO_TOKEN and heads[token] >= 0:
            roots[token] = _VISITED
            path.append(token)
            token = heads[token]
        if roots[token] == _VISITED:
            heads[token] = _NO_TOKEN
        root = token if heads[token] < 0 else roots[token]
        roots[token] = root
        for token in path:
            roots[token] = root
    return roots


def _refine_nouns(tree: Tree, tags: list[str]) -> None:
    """Take for a noun what the tag calls one, and "View of ..." at the start; give the singular of untold plurals."""
    for token, upos in enumerate(tree.upos):
        if upos == "VERB":
            if tree.lemmas[token][-1:] == "l" and tree.lemmas[token][-2:-1] in "bcdfgkpstz":  # "bustling"
                tree.lemmas[token] += "e"
            noun = tags[token] in ("NN", "NNS") or (token == 0 and tree.words[1:2] in (["of"], ["from"]))
            if noun and not tree.has_child(token, _VERB_CHILDREN):
                tree.upos[token] = "NOUN"
        elif upos == "ADJ" and tree.labels[token] == "amod" and load_taxonomy().kinds(tree.lemmas[token]) == {"noun"}:
            tree.upos[token], tree.labels[token] = "NOUN", "compound"  # "jungle gym"
        elif _is_untold_plural(tree, token, tags[token]):
            tree.lemmas[token] = tree.lemmas[token].removesuffix("s")
            tree.features[token] |= {"Number=Plur"}


def _is_untold_plural(tree: Tree, token: int, tag: str) -> bool:
    if not tree.is_noun(token) or tag == "NNS" or tree.lemmas[token] != tree.words[token]:
        return False
    return load_taxonomy().is_plural(tree.lemmas[token])


def _refine_labels(tree: Tree) -> None:
    """Tell owners and particles by their words, for parsers that use no subtypes."""
    labels, upos = tree.labels, tree.upos
    for token, label in enumerate(labels):
        if label == "compound":
            if upos[token] == "ADP":
                labels[token] = "compound:prt"
        elif label == "case":
            head = tree.heads[token]
            if head >= 0 and tree.words[token] in _GENITIVE_MARKERS and labels[head] == "nmod":
                labels[head] = "nmod:poss"
        elif label in ("nmod", "det") and "Poss=Yes" in tree.features[token]:
            labels[token] = "nmod:poss"
