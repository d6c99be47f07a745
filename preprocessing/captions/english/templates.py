"""Sentences that sound like captions, written from templates together with their dependency trees.

The treebank holds letters, reviews and news: almost no "dog", "frisbee" or "surfs". The templates are in
``captions.jinja``, which also says how a tree is written, their words in ``lexicon.yaml``.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

from jinja2 import Environment, FileSystemLoader
from nltk.tree import Tree

from preprocessing.captions.english.treebank import UPOS_OF_TAG, Word
from preprocessing.captions.inflection import inflect
from preprocessing.captions.word_lists import read_word_lists

_FOLDER = Path(__file__).parent

_LISTS = read_word_lists(_FOLDER / "lexicon.yaml")
_SLOT = re.compile(r"@\w+")


def write_captions(n: int, rng: Random) -> Iterator[list[Word]]:
    """Yield ``n`` captions written at random, each with its tree; the same state of ``rng`` gives the same ones."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        line_statement_prefix="%",
        line_comment_prefix="#-",
        extensions=["jinja2.ext.do"],
        autoescape=False,  # trees are not HTML
    )
    environment.filters.update(
        closed=lambda tree: _SLOT.sub("", tree),
        modify=lambda tree, dependents: _SLOT.sub(lambda slot: f"{dependents} {slot[0]}", tree),
        without_determiner=_without_determiner,
        without_relation=_without_relation,
    )
    environment.globals.update(
        _LISTS,
        lists=_LISTS,
        random=rng.random,
        chance=lambda probability: rng.random() < probability,
        pick=rng.choice,
        sample=rng.sample,
        noun=_noun,
        verb=_verb,
        is_plural=lambda noun: "/NNS" in noun.split()[-1],
        is_plural_only=lambda noun: noun.split()[-1].partition("/")[0] in _LISTS["plural_only"],
        first_word=lambda tree: next(part for part in tree.split() if not part.startswith("(")),
    )
    caption: Callable[[], str] = environment.get_template("captions.jinja").module.caption  # type: ignore[attr-defined]
    for _ in range(n):
        yield _finished(caption(), rng)


def _finished(tree: str, rng: Random) -> list[Word]:
    """Return a tree's words with indices of their heads, and vary casing and the final stop as in real captions."""
    draw = rng.random()
    words: list[Word] = []
    _add_words(_read(f"(root {tree} (punct ./.))" if draw < 0.75 else f"(root {tree})"), words)
    glued = {len(words) - 2} if 0.45 <= draw < 0.75 else set()
    for i, word in enumerate(words[:-1]):
        if word.form == "-":
            glued |= {i - 1, i}
        elif word.form in (",", "'s") and draw >= 0.45:
            glued.add(i - 1)
    words = [replace(word, space_after=i not in glued) for i, word in enumerate(words)]
    if rng.random() < 0.55:
        words[0] = replace(words[0], form=words[0].form[0].upper() + words[0].form[1:])
    return words


def _add_words(tree: Tree, words: list[Word]) -> int:
    """Add the words of a tree, in the order of the text, to those before it; return the index of the one at its top."""
    head, dependents = -1, []
    for part in tree:
        if isinstance(part, Tree):
            dependents.append(_add_words(part, words))
        elif not part.startswith("@"):
            form, tag, upos, lemma = [*part.split("/"), "", ""][:4]
            head = len(words)
            words.append(Word(form, lemma or form, upos or UPOS_OF_TAG[tag], tag, -1, tree.label()))
    for index in dependents:
        words[index] = replace(words[index], head=head)
    return head


def _read(tree: str) -> Tree:
    return Tree.fromstring(tree, node_pattern=r"\S+", leaf_pattern=r"[^\s()]+")


def _noun(lemma: str, plural: bool = False) -> str:
    """Return a noun, or several as a compound; a hyphen within is a word of its own, as the tokenizer has it."""
    *modifiers, last = lemma.replace("-", " - ").split()
    tree = ""
    for modifier, following in itertools.pairwise([*modifiers, last]):
        if modifier == "-":
            continue
        adjective = modifier in _LISTS["adjectives_in_compounds"]
        hyphen = "(punct -/HYPH)" if following == "-" else ""
        tree = f"({'amod' if adjective else 'compound'} {tree} {modifier}/{'JJ' if adjective else 'NN'} {hyphen})"
    return f"{tree} {_head_noun(last, plural)}"


def _head_noun(word: str, plural: bool) -> str:
    if word in _LISTS["plural_only"]:
        return f"{word}/NNS"
    if word in _LISTS["pairs"]:
        return f"{word}/NNS//{word.removesuffix('s')}"
    # The treebank takes "people" for a base form.
    return f"{inflect(word, 'NNS')}/NNS//{'people' if word == 'person' else word}" if plural else f"{word}/NN"


def _verb(lemma: str, tag: Literal["VB", "VBP", "VBZ", "VBG", "VBN"]) -> str:
    form = lemma if tag in ("VB", "VBP") else inflect(lemma, tag)
    return f"{form}/{tag}//{lemma}"


def _without_determiner(tree: str) -> str:
    """Take determiners and possessives off a noun phrase, or off the subject of a clause."""
    # The word at the top and the dependents around it, in order.
    parts = [part.pformat(margin=len(tree)) if isinstance(part, Tree) else part for part in _read(f"(root {tree})")]
    subject = next((i for i, part in enumerate(parts) if part.startswith("(nsubj ")), None)
    if subject is None:
        return " ".join(part for part in parts if not part.startswith(("(det ", "(nmod:poss ")))
    parts[subject] = f"(nsubj {_without_determiner(_without_relation(parts[subject]))})"
    return " ".join(parts)


def _without_relation(dependent: str) -> str:
    return dependent.strip()[1:-1].split(None, 1)[1]
