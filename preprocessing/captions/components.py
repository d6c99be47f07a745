"""Components that UniVSE embeds with a caption, as ids: objects, pairs of attribute and object, relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocessing.captions.graph import AttributeKind, SceneGraph
from preprocessing.captions.vocabulary import Vocabulary

# C captions of a split, I images; O objects, A pairs, T triples of all captions together.

DESCRIBING: frozenset[AttributeKind] = frozenset({"adjective", "participle"})
"""Kinds of attributes that say what an object is like, rather than how many there are."""

Pair = tuple[str, str]
"""Attribute and object, by their base forms."""
Triple = tuple[str, str, str]
"""Subject, relation and object; the relation's words are joined by "_"."""


def relation_word(lemma: str) -> str:
    """The one word by which a vocabulary knows a relation: "stand in front of" becomes "stand_in_front_of"."""
    return lemma.replace(" ", "_")


def nouns_of(graph: SceneGraph) -> list[str]:
    """The objects' base forms, each once, in the order of the caption."""
    return list(dict.fromkeys(o.lemma for o in graph.objects))


def pairs_of(graph: SceneGraph, kinds: Collection[AttributeKind] = DESCRIBING) -> list[Pair]:
    """The attributes of these kinds with their objects, each pair once."""
    return list(dict.fromkeys((a.lemma, o.lemma) for o in graph.objects for a in o.attributes if a.kind in kinds))


def triples_of(graph: SceneGraph) -> list[Triple]:
    """The relations with their two objects, each triple once."""
    objects = graph.objects
    return list(
        dict.fromkeys(
            (objects[r.subject].lemma, relation_word(r.lemma), objects[r.object].lemma) for r in graph.relations
        )
    )


def component_words(
    graphs: Iterable[SceneGraph], min_count: int = 4, kinds: Collection[AttributeKind] = DESCRIBING
) -> list[str]:
    """The words that a vocabulary needs for components: base forms of objects and attributes, and relations.

    Base forms are often no words of the captions ("ride" where these have "riding"), and a relation of several words
    never is one.

    Args:
        graphs: of the training captions.
        min_count: the fewest occurrences of a word, as an object, as an attribute or as a relation.
        kinds: the attributes that count.

    Returns:
        The words, sorted.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for graph in graphs:
        counts.update(("object", o.lemma) for o in graph.objects)
        counts.update(("attribute", a.lemma) for o in graph.objects for a in o.attributes if a.kind in kinds)
        counts.update(("relation", relation_word(r.lemma)) for r in graph.relations)
    return sorted({word for (_, word), count in counts.items() if count >= min_count})


@dataclass(frozen=True, slots=True)
class ComponentTable:
    """The components of all captions of a split, one caption's after the other's.

    A component that occurs twice in a caption is there once. One with a word that the vocabulary lacks is left out.

    Attributes:
        objects_O: ids of nouns, int32.
        pairs_A2: ids of attribute and noun, int32.
        triples_T3: ids of subject, relation and object, int32.
        object_starts: caption c has the objects from ``object_starts[c]`` up to ``object_starts[c + 1]``; int64,
            shape (C + 1,).
        pair_starts: the same of pairs.
        triple_starts: the same of triples.
        image_C: number of the caption's image, int64, ascending from 0.
        dropped: components that were left out, by the word that the vocabulary lacks.
    """

    objects_O: npt.NDArray[np.int32]
    pairs_A2: npt.NDArray[np.int32]
    triples_T3: npt.NDArray[np.int32]
    object_starts: npt.NDArray[np.int64]
    pair_starts: npt.NDArray[np.int64]
    triple_starts: npt.NDArray[np.int64]
    image_C: npt.NDArray[np.int64]
    dropped: Counter[str]

    @classmethod
    def build(
        cls,
        captions_by_image: Iterable[Sequence[SceneGraph]],
        vocabulary: Vocabulary,
        kinds: Collection[AttributeKind] = DESCRIBING,
    ) -> ComponentTable:
        """Look the components up.

        Args:
            captions_by_image: the graphs of one image's captions, image by image; captions are numbered in this order.
            vocabulary: see :func:`component_words`.
            kinds: the attributes that make pairs.
        """
        dropped: Counter[str] = Counter()
        objects, pairs, triples = _Flat(vocabulary, dropped), _Flat(vocabulary, dropped), _Flat(vocabulary, dropped)
        images: list[int] = []
        for image, graphs in enumerate(captions_by_image):
            for graph in graphs:
                images.append(image)
                objects.add((noun,) for noun in nouns_of(graph))
                pairs.add(pairs_of(graph, kinds))
                triples.add(triples_of(graph))
        return cls(
            objects_O=objects.ids(1)[:, 0],
            pairs_A2=pairs.ids(2),
            triples_T3=triples.ids(3),
            object_starts=objects.starts(),
            pair_starts=pairs.starts(),
            triple_starts=triples.starts(),
            image_C=np.array(images, dtype=np.int64),
            dropped=dropped,
        )

    def __len__(self) -> int:
        """Number of captions."""
        return len(self.image_C)

    def select(self, captions_B: npt.NDArray[np.integer]) -> dict[str, npt.NDArray[np.integer]]:
        """The components of a batch of captions.

        Args:
            captions_B: numbers of captions in the split.

        Returns:
            ``objects_O``, ``pairs_A2`` and ``triples_T3``, and with ``object_owner_O``, ``pair_owner_A`` and
            ``triple_owner_T`` the caption's row in the batch.
        """
        objects, object_owner, _ = rows_of(self.object_starts, captions_B)
        pairs, pair_owner, _ = rows_of(self.pair_starts, captions_B)
        triples, triple_owner, _ = rows_of(self.triple_starts, captions_B)
        return {
            "objects_O": self.objects_O[objects],
            "object_owner_O": object_owner,
            "pairs_A2": self.pairs_A2[pairs],
            "pair_owner_A": pair_owner,
            "triples_T3": self.triples_T3[triples],
            "triple_owner_T": triple_owner,
        }


def rows_of(
    starts: npt.NDArray[np.int64], captions_B: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows of some captions' components.

    Args:
        starts: caption c has the rows from ``starts[c]`` up to ``starts[c + 1]``.
        captions_B: numbers of captions.

    Returns:
        The rows, the place of each row's caption in the batch, and how many rows each caption has.
    """
    first_B = starts[captions_B]
    sizes_B = starts[captions_B + 1] - first_B
    owners = np.repeat(np.arange(len(captions_B)), sizes_B)
    before_B = np.cumsum(sizes_B) - sizes_B
    return np.arange(len(owners)) + (first_B - before_B)[owners], owners, sizes_B


class _Flat:
    """Collects the components of one sort over captions."""

    def __init__(self, vocabulary: Vocabulary, dropped: Counter[str]) -> None:
        self._vocabulary = vocabulary
        self._dropped = dropped
        self._ids: list[list[int]] = []
        self._starts = [0]

    def add(self, components: Iterable[tuple[str, ...]]) -> None:
        """Add a caption's components."""
        for words in components:
            ids = [self._vocabulary.find(word) for word in words]
            known = [word_id for word_id in ids if word_id is not None]
            if len(known) == len(words):
                self._ids.append(known)
            else:
                self._dropped.update(word for word, word_id in zip(words, ids, strict=True) if word_id is None)
        self._starts.append(len(self._ids))

    def ids(self, width: int) -> npt.NDArray[np.int32]:
        """All components, a row each."""
        return np.array(self._ids, dtype=np.int32).reshape(-1, width)

    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each caption, and the end."""
        return np.array(self._starts, dtype=np.int64)
