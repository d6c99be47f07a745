"""A dependency parse as plain lists: as the rules read it, and the one way in which they change it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from preprocessing.captions.wordnet.taxonomy import load_taxonomy

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

_NO_TOKEN = -1

# Subtypes that the rules tell apart; any other one is cut off ("nsubj:outer" is read as "nsubj").
_KEPT_SUBTYPES = frozenset({"nsubj:pass", "obl:agent", "nmod:poss", "acl:relcl", "compound:prt", "aux:pass"})
_SCHEMES = yaml.safe_load(Path(__file__).with_name("schemes.yaml").read_text(encoding="utf-8"))
_SUBTYPES: dict[str, str] = _SCHEMES["subtypes"]
_FEATURES_OF_TAG: dict[str, list[str]] = _SCHEMES["features_of_tag"]
_ATTRIBUTES = ["HEAD", "DEP", "ORTH", "SPACY", "LEMMA", "POS", "TAG", "MORPH"]
_KEY_BYTES = 8 * len(_ATTRIBUTES[2:])
_MOST_WORDS = 100_000  # a service reads whatever its clients write
_Word = tuple[str, str, str, str, frozenset[str]]  # a token, its word, lemma, part of speech and features
_GENITIVE_MARKERS = frozenset({"'s", "'", "’s", "’"})


@dataclass(slots=True)
class Tree:
    """The tokens of a caption and how they depend on each other; each list has an entry a token, words in lower case.

    Attributes:
        tokens: as written, each with the blank behind it.
        upos: universal parts of speech.
        features: morphological features such as "Number=Plur".
        heads: the token it depends on, -1 at the root of a sentence. There are no cycles.
        labels: of its dependency, with the few subtypes that matter.
        sentences: the first root of its sentence.
        subtyped: the parser uses subtypes, so that a plain "obl" is not an agent.
        denies: a word says that another one does not apply.
        children: the tokens that depend on it, ascending; the inverse of ``heads``.
    """

    tokens: list[str]
    words: list[str]
    lemmas: list[str]
    upos: list[str]
    features: list[frozenset[str]]
    heads: list[int]
    labels: list[str]
    sentences: list[int]
    subtyped: bool
    denies: bool = field(init=False)
    children: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.denies = not (DENIALS.isdisjoint(self.words) and DENIALS.isdisjoint(self.lemmas))
        self.link()

    def link(self) -> None:
        """Bring ``children`` in line with ``heads``."""
        self.children = [[] for _ in self.heads]
        for token, head in enumerate(self.heads):
            if head >= 0:
                self.children[head].append(token)

    def children_with(self, token: int, labels: Collection[str]) -> list[int]:
        """Return the children with one of these labels."""
        names, found = self.labels, []
        for child in self.children[token]:  # a comprehension takes twice as long, and this is asked thirty times
            if names[child] in labels:
                found.append(child)
        return found

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
        return self.upos[token] in NOUNS

    def first_conjunct(self, token: int) -> int:
        """Return the first of the words that are conjoined with a token: "man" for "boy" in "a man and a boy"."""
        while self.labels[token] == "conj" and self.heads[token] >= 0:
            token = self.heads[token]
        return token

    def case_words(self, token: int) -> list[int]:
        """Return the tokens of its prepositions, with what belongs to them: "in front of", "on the side of"."""
        found = self.children_with(token, ("case",))
        for case in tuple(found):
            found += self.children_with(case, _PARTS_OF_PREPOSITION)
        return sorted(found)

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
            """Return whether a token takes the place of its head."""
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


NOUNS = ("NOUN", "PROPN")
DENIALS = frozenset({"no", "without", "not", "n't", "n’t", "never"})
SUBJECTS = frozenset({"nsubj", "nsubj:pass"})
OBLIQUES = frozenset({"obl", "nmod"})
OWN_DETERMINERS = frozenset({"det", "nummod", "nmod:poss", "case"})
_CLAUSE = SUBJECTS | {"cop"}
_VERB_CHILDREN = frozenset({"nsubj", "nsubj:pass", "obj", "aux", "aux:pass"})
_PARTS_OF_PREPOSITION = frozenset({"fixed", "det", "amod", "compound", "nummod", "goeswith"})


class TreeReader:
    """Reads the parses of a pipeline, each word with its tags once; `lemmatize` gives the lemmas that a parse lacks."""

    def __init__(self, lemmatize: Callable[[Token], list[str]] | None = None) -> None:
        self._lemmatize = lemmatize
        self._known: dict[bytes, _Word] = {}

    def read(self, doc: Doc) -> Tree:
        """Read the parse of a ``Doc``, but for the subtypes that no rule needs."""
        # As arrays: a Token object for each word and attribute takes half the time of all rules.
        array = doc.to_array(_ATTRIBUTES)
        known, name, keys = self._known, doc.vocab.strings, array[:, 2:].tobytes()
        said = [
            known.get(key := keys[start : start + _KEY_BYTES]) or self._learn(key, doc[start // _KEY_BYTES])
            for start in range(0, len(keys), _KEY_BYTES)
        ]
        tokens, words, lemmas, upos, features = map(list, zip(*said, strict=True)) if said else ([] for _ in range(5))
        labels, offsets = [name[label] for label in array[:, 1].tolist()], array[:, 0].view("int64").tolist()
        heads = [token + offset if offset else _NO_TOKEN for token, offset in enumerate(offsets)]
        plain, sentences = [_plain(label) for label in labels], _cut_cycles(heads)
        tree = Tree(tokens, words, lemmas, upos, features, heads, plain, sentences, ":" in "".join(labels))
        _refine_labels(tree)
        _refine_nouns(tree)
        return tree

    def _learn(self, key: bytes, token: Token) -> _Word:
        lemma = token.lemma_ if token.lemma or self._lemmatize is None else self._lemmatize(token)[0]
        word, lemma, upos, tag = token.text.lower(), lemma.lower(), token.pos_, token.tag_
        features = frozenset((*filter(None, str(token.morph).split("|")), *_FEATURES_OF_TAG.get(tag, ())))
        if upos == "VERB" and lemma[-1:] == "l" and lemma[-2:-1] in "bcdfgkpstz":  # "bustling"
            lemma += "e"
        elif upos in NOUNS and tag != "NNS" and lemma == word and load_taxonomy().is_plural(lemma):
            lemma, features = lemma.removesuffix("s"), features | {"Number=Plur"}
        if len(self._known) == _MOST_WORDS:
            self._known.clear()
        self._known[key] = found = token.text_with_ws, word, lemma, upos, features
        return found


@cache
def _plain(label: str) -> str:
    if label in _KEPT_SUBTYPES:
        return label
    return "root" if label == "ROOT" else _SUBTYPES.get(label, label.partition(":")[0])


def _cut_cycles(heads: list[int]) -> list[int]:
    """Make a root of one token of each cycle, as a wrong parse may have; return the root above each token."""
    roots = []
    for token in range(len(heads)):
        for _ in heads:
            if heads[token] < 0:
                break
            token = heads[token]
        else:  # a way up that is longer than the caption goes round a cycle
            heads[token] = _NO_TOKEN
        roots.append(token)
    return roots


def _refine_nouns(tree: Tree) -> None:
    """Take for a noun what the tag calls one, and "View of ..." at the start."""
    for token, upos in enumerate(tree.upos):
        if upos == "VERB":
            noun = "Noun=Yes" in tree.features[token] or (token == 0 and tree.words[1:2] in (["of"], ["from"]))
            if noun and not tree.has_child(token, _VERB_CHILDREN):
                tree.upos[token] = "NOUN"
        elif upos == "ADJ" and tree.labels[token] == "amod" and load_taxonomy().kinds(tree.lemmas[token]) == {"noun"}:
            tree.upos[token], tree.labels[token] = "NOUN", "compound"  # "jungle gym"


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
