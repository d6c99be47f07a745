"""Components that UniVSE embeds with a caption, as ids: objects, pairs of attribute and object, relations."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.reading import damage_as, parse_json
from preprocessing.shards.index import ShardError
from preprocessing.shards.split_index import map_fields, save_fields
from preprocessing.storage.atomic import write_json_atomic

# C captions of a split, I images; O objects, A pairs, T triples of all captions together; L words of a triple.

Ids = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]

Pair = tuple[str, str]  # attribute and object, by their base forms
Triple = tuple[str, str, str]
"""Subject, relation and object; a relation may have several words: "stand in front of"."""

RelationForm = Literal["words", "joined"]
"""How a model reads a relation: word by word, or as one word of the vocabulary."""

NO_WORD = -1  # fills triples up that have fewer words than others

_RELATIONS = "relations.json"


def relation_words(lemma: str, form: RelationForm) -> list[str]:
    """Return the words in which a relation is read; joined, "stand in front of" is "stand_in_front_of"."""
    return lemma.split() if form == "words" else [lemma.replace(" ", "_")]


def nouns_of(graph: SceneGraph) -> list[str]:
    """Return the objects' base forms, each once, in the order of the caption."""
    return list(dict.fromkeys(o.lemma for o in graph.objects))


def pairs_of(graph: SceneGraph, numerals: bool = False) -> list[Pair]:
    """Return the attributes that say what an object is like with their objects, each pair once.

    With `numerals` so are numbers, as in UniVSE's appendix (amod or nummod).
    """
    return list(dict.fromkeys(_all_pairs(graph, numerals)))


def _all_pairs(graph: SceneGraph, numerals: bool) -> Iterator[Pair]:
    kinds = ("adjective", "participle", "numeral") if numerals else ("adjective", "participle")
    return ((a.lemma, o.lemma) for o in graph.objects for a in o.attributes if a.kind in kinds)


def triples_of(graph: SceneGraph) -> list[Triple]:
    """Return the relations with their two objects, each triple once."""
    objects = graph.objects
    return list(dict.fromkeys((objects[r.subject].lemma, r.lemma, objects[r.object].lemma) for r in graph.relations))


def component_words(
    graphs: Iterable[SceneGraph], min_count: int = 4, numerals: bool = False, relations: RelationForm = "words"
) -> list[str]:
    """Return the words that a vocabulary needs for components, sorted: base forms of objects, attributes and relations.

    Captions often lack base forms ("ride": they have "riding") and joined relations. A word occurs ``min_count`` times
    or more as an object, as an attribute or in a relation.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for graph in graphs:
        counts.update(("object", o.lemma) for o in graph.objects)
        counts.update(("attribute", attribute) for attribute, _ in _all_pairs(graph, numerals))
        counts.update(("relation", word) for r in graph.relations for word in relation_words(r.lemma, relations))
    return sorted({word for (_, word), count in counts.items() if count >= min_count})


class RelationTable:
    """Relations by number, and the ids of the words in which they are read; `lemmas` has them in this order."""

    def __init__(self, vocabulary: Vocabulary, form: RelationForm) -> None:
        self._vocabulary = vocabulary
        self._form: RelationForm = form
        self._numbers: dict[str, int] = {}
        self._words: list[list[int]] = []
        self.lemmas: list[str] = []

    def find(self, lemma: str) -> int | None:
        """Return the number of a relation, None if the vocabulary lacks one of its words."""
        if lemma not in self._numbers:
            ids = _known([self._vocabulary.find(word) for word in relation_words(lemma, self._form)])
            if ids is None:
                return None
            self._numbers[lemma] = len(self._words)
            self.lemmas.append(lemma)
            self._words.append(ids)
        return self._numbers[lemma]

    def read(self, triples: Ids) -> Ids:
        """Replace the relations of triples (..., 3) by their words: (..., L), filled up with :data:`NO_WORD`."""
        used, index = np.unique(triples[..., 1], return_inverse=True)
        words = [self._words[number] for number in used.tolist()]
        longest = max(map(len, words), default=1)
        padded = np.array([ids + [NO_WORD] * (longest - len(ids)) for ids in words], np.int32).reshape(-1, longest)
        relations = padded[index.reshape(triples.shape[:-1])]
        read = np.full((*triples.shape[:-1], longest + 2), NO_WORD, dtype=np.int32)
        read[..., 0], read[..., 1:-1] = triples[..., 0], relations
        # The object stands right behind its relation's last word.
        lengths = np.count_nonzero(relations != NO_WORD, axis=-1)[..., None]
        np.put_along_axis(read, lengths + 1, triples[..., 2:], axis=-1)
        return read


def _known(ids: list[int | None]) -> list[int] | None:
    known = [word_id for word_id in ids if word_id is not None]
    return known if len(known) == len(ids) else None


@dataclass(frozen=True, slots=True)
class ComponentTable:
    """The components of all captions of a split, one caption's after the other's.

    Each occurs once in a caption. One with a word that the vocabulary lacks is left out.

    Attributes:
        objects_O: ids of nouns, int32.
        pairs_A2: ids of attribute and noun, int32.
        triples_T3: id of the subject, number of the relation, id of the object, int32.
        relations: the relations by number.
        object_starts, pair_starts, triple_starts: caption c has the objects from ``object_starts[c]`` up to
            ``object_starts[c + 1]``, and so on; int64, shape (C + 1,).
        image_C: number of the caption's image, int64, ascending from 0.
    """

    objects_O: Ids
    pairs_A2: Ids
    triples_T3: Ids
    relations: RelationTable
    object_starts: Numbers
    pair_starts: Numbers
    triple_starts: Numbers
    image_C: Numbers

    @classmethod
    def build(
        cls,
        captions_by_image: Iterable[Sequence[SceneGraph]],
        vocabulary: Vocabulary,
        numerals: bool = False,
        relations: RelationForm = "words",
    ) -> Self:
        """Look the components up in a vocabulary (:func:`component_words`); captions are numbered image by image."""
        word, relation_table = vocabulary.find, RelationTable(vocabulary, relations)
        objects, pairs, triples = _Rows(word), _Rows(word, word), _Rows(word, relation_table.find, word)
        images: list[int] = []
        for image, graphs in enumerate(captions_by_image):
            for graph in graphs:
                images.append(image)
                objects.add((noun,) for noun in nouns_of(graph))
                pairs.add(pairs_of(graph, numerals))
                triples.add(triples_of(graph))
        ids = objects.ids()[:, 0], pairs.ids(), triples.ids()
        starts = objects.starts(), pairs.starts(), triples.starts()
        return cls(*ids, relation_table, *starts, np.array(images, dtype=np.int64))

    def save(self, directory: Path) -> None:
        """Write the table into a directory."""
        save_fields(self, directory)
        write_json_atomic(directory / _RELATIONS, self.relations.lemmas)

    @classmethod
    def load(cls, directory: Path, vocabulary: Vocabulary, relations: RelationForm = "words") -> Self:
        """Map what :meth:`save` has written, with the arguments of :meth:`build`; raise ShardError if it is damaged."""
        relation_table = RelationTable(vocabulary, relations)
        with damage_as(ShardError, f"{directory / _RELATIONS}", "delete the folder and train again"):
            for lemma in parse_json((directory / _RELATIONS).read_bytes()):
                relation_table.find(lemma)
        return cls(**map_fields(cls, directory, "relations"), relations=relation_table)

    def __len__(self) -> int:
        """Number of captions."""
        return len(self.image_C)

    def select(self, captions_B: npt.NDArray[np.integer]) -> dict[str, npt.NDArray[np.integer]]:
        """Return the components of a batch of captions, by their numbers in the split, with each one's row in it.

        Rows, the ``owner`` of each, are int64 and ascending; triples have the words of their relations, and are filled
        up with :data:`NO_WORD`.
        """
        objects, object_owner, _ = rows_of(self.object_starts, captions_B)
        pairs, pair_owner, _ = rows_of(self.pair_starts, captions_B)
        triples, triple_owner, _ = rows_of(self.triple_starts, captions_B)
        return {
            "objects_O": self.objects_O[objects],
            "object_owner_O": object_owner,
            "pairs_A2": self.pairs_A2[pairs],
            "pair_owner_A": pair_owner,
            "triples_TL": self.relations.read(self.triples_T3[triples]),
            "triple_owner_T": triple_owner,
        }


def rows_of(starts: Numbers, captions_B: npt.NDArray[np.integer]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the rows of some captions' components, each row's caption in the batch, and each caption's number of rows.

    Caption c has the rows from ``starts[c]`` up to ``starts[c + 1]``.
    """
    first_B = starts[captions_B]
    sizes_B = starts[captions_B + 1] - first_B
    owners = np.repeat(np.arange(len(captions_B)), sizes_B)
    before_B = np.cumsum(sizes_B) - sizes_B
    return np.arange(len(owners)) + (first_B - before_B)[owners], owners, sizes_B


class _Rows:
    """Collects the components of one sort, caption by caption; `find` looks each of their words up."""

    def __init__(self, *find: Callable[[str], int | None]) -> None:
        self._find = find
        self._ids: list[list[int]] = []
        self._starts = [0]

    def add(self, components: Iterable[tuple[str, ...]]) -> None:
        """Add a caption's components, without those that have an unknown word."""
        for words in components:
            ids = _known([find(word) for find, word in zip(self._find, words, strict=True)])
            if ids is not None:
                self._ids.append(ids)
        self._starts.append(len(self._ids))

    def ids(self) -> Ids:
        """Return all components, a row each."""
        return np.array(self._ids, dtype=np.int32).reshape(-1, len(self._find))

    def starts(self) -> Numbers:
        """Return the first row of each caption, and the end."""
        return np.array(self._starts, dtype=np.int64)
