"""From captions, whatever they contain, to scene graphs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from preprocessing.captions.graph import SceneGraph, SceneObject
from preprocessing.captions.scene_graph.arguments import Arguments
from preprocessing.captions.scene_graph.attributes import find_attributes
from preprocessing.captions.scene_graph.collapse import collapse
from preprocessing.captions.scene_graph.corrections import correct
from preprocessing.captions.scene_graph.lexicon import LEXICON
from preprocessing.captions.scene_graph.objects import find_objects, join_name, name_tokens, phrase_start
from preprocessing.captions.scene_graph.relations import find_relations
from preprocessing.captions.scene_graph.tree import Tree, TreeReader

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


MAX_TOKENS = 256
"""Tokens of a caption that are parsed; the rest is left out. Captions of the usual data sets have at most 60."""
MAX_CHARACTERS = 16 * MAX_TOKENS
"""Text behind these is not even cut into tokens: a single "word" may be megabytes long."""

Problem = Literal["empty", "no words", "too long", "control characters", "not English", "no objects"]

# Control characters, and what is not a character at all: halves of surrogate pairs and marks of byte order.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]+")
# Tags of HTML, whose names begin with a letter: "a < b" is none.
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]+")


class ParsedCaption(NamedTuple):
    """The graph of a caption, whose offsets count the tokens, and the problem in reading it, if any.

    Attributes:
        tokens: of the caption without control characters, HTML and runs of blanks, each with the blank behind it.
        graph: empty or partial if there was a problem.
        problem: the first that applies: "not English" (its graph is empty); "empty" (nothing but blanks); "no words"
            (neither letters nor digits); "too long" (only the first MAX_TOKENS tokens were read); "control characters"
            (read without these); "no objects" (it names no thing).
    """

    tokens: list[str]
    graph: SceneGraph
    problem: Problem | None


def parse_captions(nlp: Language, texts: Iterable[str], batch_size: int = 256) -> Iterator[ParsedCaption]:
    """Parse captions with a spaCy pipeline, in order, and read a scene graph from each; no caption raises an error."""
    reader, disable = _reader(nlp)
    documents = (_document(nlp, text) for text in texts)
    for doc, problem in nlp.pipe(documents, as_tuples=True, batch_size=batch_size, disable=disable):
        tree = reader.read(doc)
        graph = SceneGraph() if problem == "not English" else extract_graph(tree)
        yield ParsedCaption(tree.tokens, graph, problem or (None if graph.objects else "no objects"))


@lru_cache(maxsize=1)
def _reader(nlp: Language) -> tuple[TreeReader, list[str]]:
    """Return the reader of a pipeline's parses; with the lemmatizer, if the pipeline need not run it for that."""
    name, last = nlp.pipeline[-1]
    # It makes an object of each token and asks its morphology: the reader remembers the lemma of a word with its tags.
    return (TreeReader(last.lemmatize), [name]) if name == "lemmatizer" else (TreeReader(), [])


def _document(nlp: Language, text: str) -> tuple[Doc, Problem | None]:
    """Return a caption in tokens, ready for the pipeline; without tokens if there is nothing to parse."""
    cleaned, problem = _clean(text)
    doc = nlp.make_doc(cleaned)
    if len(doc) > MAX_TOKENS:
        doc = nlp.make_doc(cleaned[: doc[MAX_TOKENS].idx].rstrip())
        problem = "too long"
    if is_foreign(cleaned):
        problem = "not English"
    return doc, problem


def _clean(text: str) -> tuple[str, Problem | None]:
    problem: Problem | None = None
    if len(text) > MAX_CHARACTERS and len(text := text.strip()) > MAX_CHARACTERS:
        text, problem = text[:MAX_CHARACTERS], "too long"
    if "<" in text or "&" in text:
        text = html.unescape(_MARKUP.sub(" ", text))
    if not text.isprintable():
        visible = _CONTROLS.sub(" ", text)
        if visible != text:
            problem = problem or "control characters"
        text = _INVISIBLE.sub("", visible)
    cleaned = " ".join(text.split())
    if not cleaned:
        return "", problem or "empty"
    if not any(map(str.isalnum, cleaned)):
        return "", "no words"
    return cleaned, problem


_LATIN_END = "\u0250"


def is_foreign(text: str) -> bool:
    """Return whether a text is in another script than the Latin one, or has the little words of another language."""
    if not text.isascii():
        letters = [letter for letter in text if letter.isalpha()]
        if sum(letter >= _LATIN_END for letter in letters) * 2 > len(letters):
            return True
    words = text.lower().split()
    foreign = len(LEXICON["foreign"].intersection(words))
    return foreign >= 2 and foreign > len(LEXICON["english"].intersection(words))


def extract_graph(tree: Tree) -> SceneGraph:
    """Read objects, their attributes and their relations off the dependency parse of a caption.

    The rules speak of labels of Universal Dependencies (as UD English EWT uses them; subtypes may be missing). Word
    lists, in English, tell what no label does: quantifiers, prepositions of several words, places, persons.

    Differs from SceneGraphParser, which UniVSE uses: a noun may have several relations; the head of "a group of
    people" is "people"; "in front of" and "next to" relate nouns wherever they stand; a passive without agent, a
    relative clause and a verb that shares its subject with another one relate objects too; what is said of a noun by
    "is" is an attribute.
    """
    correct(tree)
    collapse(tree)
    # Conjuncts have the role of the first one: in "black and white dog", "white" is an "amod".
    role = [tree.labels[tree.first_conjunct(token)] if own == "conj" else own for token, own in enumerate(tree.labels)]
    heads = find_objects(tree, role)
    if not heads:
        return SceneGraph()
    arguments = Arguments(tree, heads)
    objects = []
    for head, attributes in zip(heads, find_attributes(tree, role, heads, arguments), strict=True):
        parts = name_tokens(tree, head)
        word, lemma, phrase = tree.words[head], tree.lemmas[head], join_name(tree, parts, tree.words)
        # As written, too: "woods" are a place, "wood" is not.
        names = {word, lemma, phrase if lemma == word else join_name(tree, parts, tree.lemmas)}
        start, end = phrase_start(tree, head), max(parts[-1], head) + 1
        objects.append(
            SceneObject(word, lemma, phrase, start, end, not names.isdisjoint(LEXICON["scenes"]), attributes)
        )
    return SceneGraph(tuple(objects), find_relations(tree, arguments))
