"""Words that replace those of a caption in negatives: nouns, adjectives and relations of the training captions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import TypeAdapter

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.word_lists import WORD_LISTS
from preprocessing.captions.wordnet.taxonomy import load_taxonomy
from preprocessing.reading import damage_as
from preprocessing.storage.atomic import write_json_atomic

# Part of the fingerprints of what draws from pools: raise it when the same graphs give others.
VERSION = 2

PAPER_ADJECTIVES = tuple(WORD_LISTS["paper_adjectives"])
_MIN_SHARE = 0.5
"""Share of an adjective's uses in which it is one; below it stand a parser's slips: "like", "front", "off"."""


class PoolsError(ValueError):
    """Pools cannot be built or read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Words to draw negatives from, each pool sorted: base forms of objects, attributes, base forms of relations."""

    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    relations: tuple[str, ...]

    FILE: ClassVar[str] = "negative_pools.json"

    @classmethod
    def build(
        cls,
        graphs: Iterable[SceneGraph],
        min_nouns: int = 10,
        min_adjectives: int = 10,
        min_relations: int = 5,
        adjectives: Literal["captions", "paper"] = "captions",
    ) -> Self:
        """Collect the words that the training captions use often enough.

        UniVSE takes the nouns that occur 100 times in COCO's 414,000 captions, and all relations; the defaults ask of
        Flickr8k's 30,000 the like. A parser's slips are left out: what was seen once or twice, "nouns" that WordNet
        knows as something else alone, "adjectives" that it does not know as such, or that are mostly used otherwise.
        Adjectives are such that a photograph shows or contradicts them: not "second", "lone", "ready"; with "paper"
        they are :data:`PAPER_ADJECTIVES`. An empty pool is a PoolsError.
        """
        nouns, attributes, relations, other_uses = (Counter[str]() for _ in range(4))
        for graph in graphs:
            nouns.update(o.lemma for o in graph.objects)
            attributes.update(a.lemma for o in graph.objects for a in o.attributes if a.kind == "adjective")
            relations.update(r.lemma for r in graph.relations)
            other_uses.update(_words_besides_adjectives(graph))
        visible = {
            word: count
            for word, count in attributes.items()
            if word not in WORD_LISTS["unseen_adjectives"]
            and "adjective" in load_taxonomy().kinds(word)
            and count >= _MIN_SHARE * (count + other_uses[word])
        }
        return cls(
            nouns=_frequent({word: nouns[word] for word in nouns if _is_noun(word)}, min_nouns, "nouns"),
            adjectives=(
                tuple(sorted(PAPER_ADJECTIVES))
                if adjectives == "paper"
                else _frequent(visible, min_adjectives, "adjectives")
            ),
            relations=_frequent(relations, min_relations, "relations"),
        )

    def save(self, path: Path) -> None:
        """Write the pools as JSON."""
        write_json_atomic(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise PoolsError if the file is missing or damaged."""
        with damage_as(PoolsError, f"{path} holds no pools of words", "build them again"):
            return TypeAdapter(cls).validate_json(path.read_bytes())


def _words_besides_adjectives(graph: SceneGraph) -> Iterator[str]:
    for thing in graph.objects:
        yield from {thing.lemma, *thing.phrase.split()}
        yield from (attribute.lemma for attribute in thing.attributes if attribute.kind != "adjective")
    for relation in graph.relations:
        yield from {*relation.words.split(), *relation.lemma.split()}


def _is_noun(noun: str) -> bool:
    """Return whether a word may be a noun; words that WordNet lacks ("wetsuit") may be."""
    kinds = load_taxonomy().kinds(noun)
    return "noun" in kinds or (not kinds and noun.isalpha())


def _frequent(counts: Mapping[str, int], min_count: int, name: str) -> tuple[str, ...]:
    words = tuple(sorted(word for word, count in counts.items() if count >= min_count))
    if not words:
        raise PoolsError(f"none of {len(counts)} {name} occurs {min_count} times or more: lower pools.min_{name}")
    return words
