"""The scene graph of a caption: objects with their attributes, and relations between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

AttributeKind = Literal["adjective", "participle", "numeral", "quantifier"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property of an object, its word as written, in lower case; numerals and quantifiers count, others describe.

    The lemma of "smaller" is "small"; a participle stays as it is ("parked", "smiling").
    """

    word: str
    lemma: str
    kind: AttributeKind


@dataclass(frozen=True, slots=True)
class SceneObject:
    """A thing that a caption names: its noun as written ("rackets"), the base form, the `phrase` ("tennis rackets").

    `start` is the first token of the noun phrase in the caption, `end` the token after its last one. `is_scene` tells
    that it names a place ("kitchen", "beach") rather than a thing in it.
    """

    word: str
    lemma: str
    phrase: str
    start: int
    end: int
    is_scene: bool
    attributes: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of one object to another, by their indices into the graph's objects.

    `words` are as written, in lower case: "standing in front of"; `lemma` is "stand in front of".
    """

    subject: int
    object: int
    words: str
    lemma: str


@dataclass(frozen=True, slots=True)
class SceneGraph:
    """Objects and relations of one caption; both empty if nothing was recognised."""

    objects: tuple[SceneObject, ...] = ()
    relations: tuple[Relation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, short enough to store millions of them: fields in the order of the classes above."""
        objects = [
            [o.word, o.lemma, o.phrase, o.start, o.end, o.is_scene, [[a.word, a.lemma, a.kind] for a in o.attributes]]
            for o in self.objects
        ]
        return {"objects": objects, "relations": [[r.subject, r.object, r.words, r.lemma] for r in self.relations]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        objects = tuple(
            SceneObject(word, lemma, phrase, start, end, is_scene, tuple(Attribute(*fields) for fields in attributes))
            for word, lemma, phrase, start, end, is_scene, attributes in data["objects"]
        )
        return cls(objects, tuple(Relation(*fields) for fields in data["relations"]))
