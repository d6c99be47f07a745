"""The contents of a scene: its objects, their attributes and places, and the relations between them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeVar

from preprocessing.randomness import scene_bits

T = TypeVar("T")

CANVAS = 128  # pixels a side

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart")
COLOURS = ("red", "orange", "yellow", "green", "blue", "pink", "white", "black")
SIZES = ("small", "big")
TEXTURES = ("plain", "striped", "dotted")
BACKGROUNDS = ("grey", "beige", "purple", "brown")

LEFT_OF, ABOVE, INSIDE = "left of", "above", "inside"

# Splits take their scenes from separate ranges of the index, and from separate compositions (see compose_scene).
SPLIT_STARTS = {"train": 0, "dev": 10**9, "test": 2 * 10**9}
SCENES_PER_SPLIT = 10**9
_SPLIT_BUCKETS = {"train": (0, 1, 2, 3, 4, 5), "dev": (6,), "test": (7,)}
_BUCKETS = 8

_LAYOUT_STREAM = 0
_LATTICE = (22, 64, 106)  # centres of the 3 x 3 cells, pixels
_RADII = {"small": (11, 12), "big": (18, 19)}  # pixels, smallest and largest
_FRAME_RADIUS = 28  # an object that holds another is larger still
_FRAME_SHAPES = ("circle", "square", "ring", "diamond")  # those with room for another object in the middle
_JITTER = 1  # pixels; two big neighbours keep 42 - 2 * 19 - 2 * 1 = 2 pixels between them


class Draws:
    """A stream of draws that is a function of (seed, index, stream) alone, each in 0 .. 2**64 - 1.

    Built on the raw output of Philox, which numpy guarantees not to change, unlike the methods of its Generator.
    """

    def __init__(self, seed: int, index: int, stream: int) -> None:
        self._bits = scene_bits(seed, index, stream)

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to limit - 1 (the bias of the remainder is below limit / 2**64)."""
        return int(self._bits.random_raw()) % limit

    def between(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of 100 draws."""
        return self.below(100) < percent

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` different items in random order (Fisher-Yates)."""
        pool = list(items)
        for place in range(count):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:count]


class SceneObject(NamedTuple):
    """One shape: its attributes, the pixel of its centre (x to the right, y down) and its radius in pixels."""

    shape: str
    colour: str
    size: str
    texture: str
    x: int
    y: int
    radius: int

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Return the attributes without the geometry: (size, texture, colour, shape)."""
        return (self.size, self.texture, self.colour, self.shape)


class Relation(NamedTuple):
    """`objects[subject]` is left of, above or inside `objects[target]`; the inverses follow from it."""

    subject: int
    predicate: str
    target: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Contents of an image: one to three objects on a background.

    `relations` lists the relations that hold plainly; a pair that stands diagonally has none. `place` is the
    (row, column) cell of the only object of a scene, each 0 .. 2, and None if there are more.
    """

    seed: int
    index: int
    background: str
    objects: tuple[SceneObject, ...]
    relations: tuple[Relation, ...]
    place: tuple[int, int] | None


def split_of(seed: int, index: int) -> str:
    """Return the split of a scene; raise ValueError unless there is one of this seed and index."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"scene seed {seed} is outside 0 .. 2**64 - 1")
    for split, start in SPLIT_STARTS.items():
        if start <= index < start + SCENES_PER_SPLIT:
            return split
    raise ValueError(f"scene index {index} is outside 0 .. {len(SPLIT_STARTS) * SCENES_PER_SPLIT - 1}")


def compose_scene(seed: int, index: int) -> Scene:
    """Return the scene of a seed at an index: a function of the two alone.

    Compositions (objects, attributes, relations) are dealt out to the splits by their hash, and drawn again until one
    belongs to the split of the index. So no composition of dev or test is ever seen in training, under any seed.
    """
    buckets = _SPLIT_BUCKETS[split_of(seed, index)]
    draws = Draws(seed, index, _LAYOUT_STREAM)
    while True:
        scene = _draw_scene(seed, index, draws)
        if _bucket(scene) in buckets:
            return scene


def _bucket(scene: Scene) -> int:
    """Return the hash bucket of the scene's composition, whatever its background and exact positions."""
    relations = sorted(
        (scene.objects[r.subject].words, r.predicate, scene.objects[r.target].words) for r in scene.relations
    )
    composition = repr((sorted(item.words for item in scene.objects), relations, scene.place))
    return hashlib.sha256(composition.encode()).digest()[0] % _BUCKETS


def _draw_scene(seed: int, index: int, draws: Draws) -> Scene:
    background = draws.choice(BACKGROUNDS)
    lot = draws.below(10)
    if lot == 0:
        row, column = draws.below(3), draws.below(3)
        only = _draw_object(draws, row, column, [])
        return Scene(seed, index, background, (only,), (), (row, column))
    objects, relations = _draw_pair(draws) if lot < 6 else _draw_three(draws)
    return Scene(seed, index, background, tuple(objects), tuple(relations), None)


def _draw_pair(draws: Draws) -> tuple[list[SceneObject], list[Relation]]:
    """Draw two objects: in a row, in a column, or one inside the other (in 4, 4 and 2 of 10)."""
    lot = draws.below(10)
    if lot < 2:
        return _draw_nested(draws, draws.below(3), draws.below(3))
    line = draws.below(3)
    first, second = sorted(draws.sample(range(3), 2))
    cells = [(line, first), (line, second)] if lot < 6 else [(first, line), (second, line)]
    return _draw_on_cells(draws, cells)


def _draw_three(draws: Draws) -> tuple[list[SceneObject], list[Relation]]:
    """Draw three objects: in a row, a column, a corner, or a nested pair next to one (in 2, 2, 4 and 2 of 10)."""
    lot = draws.below(10)
    if lot < 4:
        line = draws.below(3)
        return _draw_on_cells(draws, [(line, k) if lot < 2 else (k, line) for k in range(3)])
    if lot < 8:
        rows, columns = sorted(draws.sample(range(3), 2)), sorted(draws.sample(range(3), 2))
        cells = [(row, column) for row in rows for column in columns]
        del cells[draws.below(4)]
        return _draw_on_cells(draws, cells)
    return _draw_nested_and_one(draws)


def _draw_on_cells(draws: Draws, cells: list[tuple[int, int]]) -> tuple[list[SceneObject], list[Relation]]:
    objects: list[SceneObject] = []
    for row, column in cells:
        objects.append(_draw_object(draws, row, column, objects))
    relations = []
    for (i, one), (j, other) in combinations(enumerate(cells), 2):
        if one[0] == other[0]:
            relations.append(Relation(i, LEFT_OF, j))
        elif one[1] == other[1]:
            relations.append(Relation(i, ABOVE, j))
    return objects, relations


def _draw_nested(draws: Draws, row: int, column: int) -> tuple[list[SceneObject], list[Relation]]:
    """Draw a small object inside a big plain one; the frame comes first, since it is drawn first."""
    edge = _FRAME_RADIUS + 4  # keeps the outline on the canvas
    x, y = (min(max(_LATTICE[k], edge), CANVAS - edge) for k in (column, row))
    frame = SceneObject(draws.choice(_FRAME_SHAPES), draws.choice(COLOURS), "big", "plain", x, y, _FRAME_RADIUS)
    colour = draws.choice([name for name in COLOURS if name != frame.colour])
    radius = draws.between(*_RADII["small"])
    inner = SceneObject(draws.choice(SHAPES), colour, "small", draws.choice(TEXTURES), x, y, radius)
    return [frame, inner], [Relation(1, INSIDE, 0)]


def _draw_nested_and_one(draws: Draws) -> tuple[list[SceneObject], list[Relation]]:
    """Draw a nested pair at one end of a row or column and a third object at the other end."""
    line, horizontal, pair_first = draws.below(3), draws.chance(50), draws.chance(50)
    near, far = (0, 2) if pair_first else (2, 0)
    objects, relations = _draw_nested(draws, *((line, near) if horizontal else (near, line)))
    objects.append(_draw_object(draws, *((line, far) if horizontal else (far, line)), objects))
    predicate = LEFT_OF if horizontal else ABOVE
    for member in (0, 1):
        relations.append(Relation(member, predicate, 2) if pair_first else Relation(2, predicate, member))
    return objects, relations


def _draw_object(draws: Draws, row: int, column: int, others: list[SceneObject]) -> SceneObject:
    """Draw an object near the centre of a cell; no two of a scene agree in colour and shape."""
    taken = {(other.colour, other.shape) for other in others}
    free = [(colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in taken]
    colour, shape = draws.choice(free)
    size = draws.choice(SIZES)
    return SceneObject(
        shape=shape,
        colour=colour,
        size=size,
        texture=draws.choice(TEXTURES),
        x=_LATTICE[column] + draws.between(-_JITTER, _JITTER),
        y=_LATTICE[row] + draws.between(-_JITTER, _JITTER),
        radius=draws.between(*_RADII[size]),
    )
