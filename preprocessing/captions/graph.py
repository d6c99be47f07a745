"""The scene graph of a caption: objects with their attributes, and relations between them."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

AttributeKind = Literal["adjective", "participle", "numeral", "quantifier"]


class Attribute(NamedTuple):
    """A property of an object, its word as written, in lower case; numerals and quantifiers count, others describe.

    The lemma of "smaller" is "small"; a participle stays as it is ("parked", "smiling").
    """

    word: str
    lemma: str
    kind: AttributeKind


class SceneObject(NamedTuple):
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


class Relation(NamedTuple):
    """A relation of one object to another, by their indices into the graph's objects.

    `words` are as written, in lower case: "standing in front of"; `lemma` is "stand in front of".
    """

    subject: int
    object: int
    words: str
    lemma: str


class SceneGraph(NamedTuple):
    """Objects and relations of one caption; both empty if nothing was recognised."""

    objects: tuple[SceneObject, ...] = ()
    relations: tuple[Relation, ...] = ()

    def as_written(self) -> Self:
        """Return the graph with the caption's words in place of base forms: "dogs", "standing in front of"."""
        objects = (
            thing._replace(lemma=thing.word, attributes=tuple(a._replace(lemma=a.word) for a in thing.attributes))
            for thing in self.objects
        )
        return self._replace(objects=tuple(objects), relations=tuple(r._replace(lemma=r.words) for r in self.relations))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what JSON keeps of ``_asdict()``: short lists, fields in the order of the classes above."""
        objects = tuple(
            SceneObject._make((*fields, tuple(map(Attribute._make, attributes))))
            for *fields, attributes in data["objects"]
        )
        return cls(objects, tuple(map(Relation._make, data["relations"])))
