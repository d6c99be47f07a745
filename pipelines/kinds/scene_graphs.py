"""Scene graphs of a split's captions, for the kinds of models that train on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError

if TYPE_CHECKING:
    from pipelines.kinds.inputs import KindSettings, SplitData
    from preprocessing.captions.graph import SceneGraph
    from preprocessing.captions.pools import Pools


def require_graphs(split: SplitData) -> Path:
    """Return the directory of a split's graphs; StageError if its captions have not been parsed."""
    if split.graphs is None:
        raise StageError(
            f"the model reads the scene graphs of captions, which have not been parsed: run `{command('parse')}` with "
            "the same options first"
        )
    return split.graphs


def graphs_of(split: SplitData) -> Iterator[list[SceneGraph]]:
    """Yield the graphs of a split's captions, image by image, in the order of its features.

    Raises StageError if there are none, or they are of other captions than the features.
    """
    from preprocessing.captions.graph_shards import read_graphs
    from preprocessing.shards.split_index import shard_paths

    directory = require_graphs(split)
    images = (record for path in shard_paths(directory) for record in read_graphs(path))
    for image in range(len(split.reader)):
        meta = split.reader.meta(image)
        image_id, captions = next(images, (None, []))
        expected = (meta["image_id"], [caption["caption_id"] for caption in meta["captions"]])
        if (image_id, [caption_id for caption_id, _ in captions]) != expected:
            raise StageError(
                f"parse: the graphs in {directory} are not of the captions in {split.reader.directory}: image {image} "
                f"is {image_id!r}, where the features have {meta['image_id']!r}; delete the folder and run "
                f"`{command('parse')}` again with the same options"
            )
        yield [graph for _, graph in captions]


def write_pools(settings: KindSettings, train: SplitData, directory: Path) -> Pools:
    """Write the words that negatives and adversarial captions are made with into a run's directory.

    Raises StageError if the training captions have too few different words.
    """
    from preprocessing.captions.pools import Pools, PoolsError

    try:
        pools = Pools.build(itertools.chain.from_iterable(graphs_of(train)), **settings.pools.model_dump())
    except PoolsError as error:
        raise StageError(f"train: {error}") from error
    pools.save(directory / Pools.FILE)
    return pools
