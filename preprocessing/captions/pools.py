"""Words that replace those of a caption in negatives: nouns, adjectives and relations of the training captions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from preprocessing.captions.graph import SceneGraph
from preprocessing.storage.atomic import write_json_atomic

_PAPER_ADJECTIVES = (
    "white black red green brown yellow orange pink gray grey purple young wooden old snowy grassy cloudy colorful "
    "sunny beautiful bright sandy fresh modern cute dry dirty clean polar crowded silver plastic concrete rocky "
    "wooded messy square"
)
PAPER_ADJECTIVES = tuple(_PAPER_ADJECTIVES.split())
"""The 37 adjectives of UniVSE's appendix ("morden" there)."""


class PoolsError(ValueError):
    """Pools cannot be built or read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Words to draw negatives from; each pool sorted.

    Attributes:
        nouns: base forms of objects.
        adjectives: attributes.
        relations: base forms, of one word or several.
    """

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
    ) -> Pools:
        """Collect the words that captions use often enough.

        UniVSE takes the nouns that occur 100 times in COCO's 414,000 captions, and all relations; the defaults ask of
        Flickr8k's 30,000 the like, and leave out what was seen once or twice: mostly a parser's slips.

        Args:
            graphs: of the training captions alone.
            min_nouns: the fewest occurrences of a noun.
            min_adjectives: the fewest occurrences of an adjective; without effect on UniVSE's list.
            min_relations: the fewest occurrences of a relation.
            adjectives: "captions" collects them, "paper" takes :data:`PAPER_ADJECTIVES`.

        Raises:
            PoolsError: a pool is empty.
        """
        nouns: Counter[str] = Counter()
        attributes: Counter[str] = Counter()
        relations: Counter[str] = Counter()
        for graph in graphs:
            nouns.update(o.lemma for o in graph.objects)
            attributes.update(a.lemma for o in graph.objects for a in o.attributes if a.kind == "adjective")
            relations.update(r.lemma for r in graph.relations)
        return cls(
            nouns=_frequent(nouns, min_nouns, "nouns"),
            adjectives=(
                tuple(sorted(PAPER_ADJECTIVES))
                if adjectives == "paper"
                else _frequent(attributes, min_adjectives, "adjectives")
            ),
            relations=_frequent(relations, min_relations, "relations"),
        )

    def save(self, path: Path) -> None:
        """Write the pools as JSON."""
        write_json_atomic(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Pools:
        """Read what :meth:`save` has written.

        Raises:
            PoolsError: the file is missing or damaged.
        """
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
            pools = {name: tuple(data[name]) for name in ("nouns", "adjectives", "relations")}
        except OSError as error:
            raise PoolsError(f"cannot read the pools {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise PoolsError(f"{path} holds no pools of words ({error}): build it again") from error
        if not all(isinstance(word, str) for words in pools.values() for word in words):
            raise PoolsError(f"{path}: a pool holds something else than words: build it again")
        return cls(**pools)


def _frequent(counts: Counter[str], min_count: int, name: str) -> tuple[str, ...]:
    words = tuple(sorted(word for word, count in counts.items() if count >= min_count))
    if not words:
        raise PoolsError(
            f"none of {len(counts)} different {name} occurs {min_count} times or more: lower min_{name} or give more "
            "captions"
        )
    return words
