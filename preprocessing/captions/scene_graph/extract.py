"""From a parsed caption to its scene graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preprocessing.captions.graph import SceneGraph, SceneObject
from preprocessing.captions.scene_graph.arguments import Arguments
from preprocessing.captions.scene_graph.attributes import find_attributes
from preprocessing.captions.scene_graph.clearnlp import to_universal
from preprocessing.captions.scene_graph.collapse import collapse
from preprocessing.captions.scene_graph.corrections import correct
from preprocessing.captions.scene_graph.lexicon import LEXICON
from preprocessing.captions.scene_graph.objects import find_objects, join_name, name_tokens, phrase_start
from preprocessing.captions.scene_graph.relations import find_relations
from preprocessing.captions.scene_graph.tree import Lemmas, read_tree

if TYPE_CHECKING:
    from spacy.tokens import Doc


def extract_graph(doc: Doc, lemmas: Lemmas | None = None) -> SceneGraph:
    """Read objects, their attributes and their relations off the dependency parse of a caption.

    The rules speak of labels of Universal Dependencies (as UD English EWT uses them; subtypes may be missing); parses
    of spaCy's own English models are brought into that form first. Word lists, in English, tell what no label does:
    quantifiers, prepositions of several words, places, persons.

    Differs from SceneGraphParser, which UniVSE uses: a noun may have several relations; the head of "a group of
    people" is "people"; "in front of" and "next to" relate nouns wherever they stand; a passive without agent, a
    relative clause and a verb that shares its subject with another one relate objects too; what is said of a noun by
    "is" is an attribute.

    Offsets in the graph count the tokens. `lemmas` gives those of tokens that have none. Raises ValueError without
    dependency heads and labels, parts of speech or lemmas.
    """
    tree = read_tree(doc, lemmas)
    to_universal(tree)
    correct(tree)
    collapse(tree)
    # Conjuncts have the role of the first one: in "black and white dog", "white" is an "amod".
    role = [tree.labels[tree.first_conjunct(token)] for token in range(len(tree.labels))]
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
