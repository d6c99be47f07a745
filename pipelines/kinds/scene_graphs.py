"""Scene graphs of a split's captions, for the kinds of models that train on them."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.pools import Pools, PoolsError


def require_graphs(split: SplitData) -> Path:
    """Return the directory of a split's graphs; StageError if its captions have not been parsed."""
    if split.graphs is None:
        raise StageError(
            f"the model reads the scene graphs of captions, which have not been parsed: run `{command('parse')}` with "
            "the same options first"
        )
    return split.graphs


def graphs_of(split: SplitData, as_written: bool = False) -> Iterator[list[SceneGraph]]:
    """Yield the graphs of each image's captions; StageError if there are none, or those of other captions.

    `as_written` replaces base forms by the captions' words.
    """
    directory = require_graphs(split)
    images = read_captions(directory)
    for image in range(len(split.reader)):
        meta, captions = split.reader.meta(image), next(images, [])
        expected = [(meta["image_id"], caption["caption_id"]) for caption in meta["captions"]]
        if [(caption.image_id, caption.caption_id) for caption in captions] != expected:
            raise StageError(
                f"parse: the graphs in {directory} are not of the captions in {split.reader.directory}: image {image} "
                f"is {meta['image_id']!r} in the features; delete the folder and run `{command('parse')}` again with "
                "the same options"
            )
        yield [caption.graph.as_written() if as_written else caption.graph for caption in captions]


def write_pools(settings: KindSettings, train: SplitData, directory: Path) -> Pools:
    """Write the words that negatives and adversarial captions are made with; StageError if there are too few."""
    graphs = graphs_of(train, getattr(settings.text, "surface_words", False))
    try:
        pools = Pools.build(itertools.chain.from_iterable(graphs), **settings.pools.model_dump())
    except PoolsError as error:
        raise StageError(f"train: {error}") from error
    pools.save(directory / Pools.FILE)
    return pools
