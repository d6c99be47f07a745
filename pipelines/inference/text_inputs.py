"""What a model's text side reads: tokens, and beside them for UniVSE the captions' components, for HGR role graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.runtime.stage import StageError
from preprocessing.captions.components import ComponentTable
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.graph_shards import read_graphs
from preprocessing.captions.role_graphs import RoleGraph, RoleGraphError, RoleGraphTable, read_role_graphs
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import component_tensors
from preprocessing.shards.reader import ShardReader, shard_paths
from vse_core.encoders.role_graphs import RoleGraphs
from vse_core.models import Components


def graphs_of(directory: Path, reader: ShardReader) -> Iterator[list[SceneGraph]]:
    """The graphs of a split's captions, image by image, in the order of its features.

    Args:
        directory: the shards of graphs.
        reader: the features.

    Raises:
        ShardError: a shard is damaged.
        StageError: they are not the captions of these features.
    """
    images = (record for path in shard_paths(directory) for record in read_graphs(path))
    for image in range(len(reader)):
        meta = reader.meta(image)
        image_id, captions = next(images, (None, []))
        expected = (meta["image_id"], [caption["caption_id"] for caption in meta["captions"]])
        if (image_id, [caption_id for caption_id, _ in captions]) != expected:
            raise StageError(
                f"parse: the graphs in {directory} are not of the captions in {reader.directory}: image {image} is "
                f"{image_id!r}, where the features have {meta['image_id']!r}; delete the folder and run parse.py again"
            )
        yield [graph for _, graph in captions]


def text_batches(
    tokens: Iterable[tuple[Tensor, Tensor]], table: ComponentTable | RoleGraphTable | None, first: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Batches of captions as ``encode_texts`` of a model takes them.

    Args:
        tokens: token ids and lengths of consecutive captions.
        table: the components or the role graphs of all captions of the split; None where the model reads tokens alone.
        first: number of the first caption.
    """
    for tokens_CL, lengths_C in tokens:
        if table is None:
            yield tokens_CL, lengths_C
            continue
        captions_C = np.arange(first, first := first + len(lengths_C))
        if isinstance(table, RoleGraphTable):
            arrays = table.select(captions_C, tokens_CL.shape[1])
            yield tokens_CL, lengths_C, RoleGraphs(**{name: torch.from_numpy(part) for name, part in arrays.items()})
            continue
        yield tokens_CL, lengths_C, Components(**component_tensors(table.select(captions_C)))


@lru_cache(maxsize=1)
def _role_graphs(path: Path) -> dict[str, RoleGraph]:
    return read_role_graphs(path)


def role_graph_table(path: Path, reader: ShardReader) -> RoleGraphTable:
    """The role graphs of a split's captions, from HGR's JSON, which is read once in a process.

    Raises:
        StageError: the file is missing or malformed, or lacks a caption.
    """
    captions = (caption["text"] for meta in reader.metas() for caption in meta["captions"])
    try:
        return RoleGraphTable.build(captions, _role_graphs(path))
    except RoleGraphError as error:
        raise StageError(f"model.text.graphs: {error}") from error


def component_table(directory: Path, reader: ShardReader, vocabulary: CaptionEncoder) -> ComponentTable:
    """The components of a split's captions as ids of a model's vocabulary."""
    assert isinstance(vocabulary, Vocabulary)
    return ComponentTable.build(graphs_of(directory, reader), vocabulary)
