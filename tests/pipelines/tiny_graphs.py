"""A split whose captions have graphs: features, captions and graphs tell the same, and something can be learned."""

from pathlib import Path

import numpy as np

from preprocessing.captions.graph import Attribute, Relation, SceneGraph, SceneObject
from preprocessing.shards.writer import Sample, write_shard

COLOURS = ["red", "blue", "green", "white"]
SHAPES = ["circle", "square", "star", "cross"]
RELATIONS = ["above", "below", "beside"]
WIDTH = len(COLOURS) + len(SHAPES) + len(RELATIONS)


def write_split(root: Path, images: int, seed: int) -> None:
    """Write shards of features into ``root/features`` and of graphs into ``root/graphs``.

    Every image has four cells: two of a coloured shape each, one of the relation between them, one of noise; five
    captions say it, of which the last names the first shape only and the fourth nothing at all.
    """
    rng = np.random.default_rng(seed)
    features, graphs = [], []
    for image in range(images):
        colours, shapes = rng.choice(len(COLOURS), 2), rng.choice(len(SHAPES), 2, replace=False)
        relation = int(rng.integers(len(RELATIONS)))
        cells = 0.1 * rng.standard_normal((4, WIDTH))
        for cell in range(2):
            cells[cell, [colours[cell], len(COLOURS) + shapes[cell]]] += 1
        cells[2, len(COLOURS) + len(SHAPES) + relation] += 1
        captions, parsed = [], []
        for number in range(5):
            words, graph = _caption(number, colours, shapes, relation)
            caption = {"caption_id": f"{image}#{number}", "text": " ".join(words)}
            captions.append(caption)
            parsed.append(
                {**caption, "tokens": [f"{word} " for word in words], "graph": graph._asdict(), "problem": None}
            )
        meta = {"image_id": str(image), "image": f"scene://0/{image}", "split": "train", "captions": captions}
        key = f"{image:08d}"
        features.append(Sample(key, {"grid": cells.astype(np.float16)}, meta))
        graphs.append(Sample(key, {}, {**meta, "captions": parsed}))
    for name, samples in (("features", features), ("graphs", graphs)):
        (root / name).mkdir(parents=True)
        write_shard(root / name / "shard-00000.tar", samples, name[0] * 64)


def _caption(number: int, colours: np.ndarray, shapes: np.ndarray, relation: int) -> tuple[list[str], SceneGraph]:
    if number == 3:
        return ["beautiful"], SceneGraph()
    things = [(COLOURS[colour], SHAPES[shape]) for colour, shape in zip(colours, shapes, strict=True)]
    if number == 4:
        words = ["a", *things[0]]
        return words, SceneGraph((_thing(*things[0], 0),))
    word = RELATIONS[relation]
    words = ["a", *things[0], word, "a", *things[1]]
    return words, SceneGraph((_thing(*things[0], 0), _thing(*things[1], 4)), (Relation(0, 1, word, word),))


def _thing(colour: str, shape: str, start: int) -> SceneObject:
    return SceneObject(shape, shape, shape, start, start + 3, False, (Attribute(colour, colour, "adjective"),))
