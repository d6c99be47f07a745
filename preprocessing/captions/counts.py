"""Counts of what many captions name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preprocessing.captions.graph import SceneGraph

if TYPE_CHECKING:
    from preprocessing.captions.scene_graph import ParsedCaption


@dataclass
class GraphCounts:
    """Counts over the graphs of captions; the counts of parts can be merged.

    Attributes:
        captions: their number.
        without: captions without objects, without attributes and without relations, by these words.
        problems: reasons why a graph is empty or partial.
        objects: lemmas of objects.
        attributes: "attribute object", lemmas.
        relations: lemmas of relations.
    """

    captions: int = 0
    without: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    objects: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, captions: Iterable[ParsedCaption]) -> GraphCounts:
        """Count what captions say."""
        counts = cls()
        for caption in captions:
            counts.captions += 1
            if caption.problem is not None:
                counts.problems[caption.problem] += 1
            counts._add(caption.graph)
        return counts

    def _add(self, graph: SceneGraph) -> None:
        attributes = [f"{attribute.lemma} {thing.lemma}" for thing in graph.objects for attribute in thing.attributes]
        relations = [relation.lemma for relation in graph.relations]
        for kind, found in (("objects", graph.objects), ("attributes", attributes), ("relations", relations)):
            self.without[kind] += not found
        self.objects.update(thing.lemma for thing in graph.objects)
        self.attributes.update(attributes)
        self.relations.update(relations)

    def merge(self, other: GraphCounts) -> None:
        """Add the counts of other captions."""
        self.captions += other.captions
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary whose bytes as JSON depend on the counts alone."""
        return {"captions": self.captions, **{name: dict(sorted(getattr(self, name).items())) for name in _COUNTERS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphCounts:
        """Read what :meth:`to_json` returned."""
        return cls(data["captions"], *(Counter(data[name]) for name in _COUNTERS))


_COUNTERS = ("without", "problems", "objects", "attributes", "relations")
