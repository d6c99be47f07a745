"""The captions of a shard as a Parquet file next to it, a row for each image: nothing opens the tar to read them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.reading import damage_as
from preprocessing.shards.index import FIX, ShardError
from preprocessing.storage.atomic import open_atomic
from preprocessing.storage.mirror import table_path

_NAMES = ("image_id", "image", "split")
_CAPTION = ("caption_id", "text")


def _texts(names: Iterable[str]) -> list[pa.Field]:
    return [pa.field(name, pa.string(), nullable=False) for name in names]


_CAPTIONS = pa.list_(pa.field("element", pa.struct(_texts(_CAPTION)), nullable=False))
_SCHEMA = pa.schema([*_texts(_NAMES), pa.field("captions", _CAPTIONS, nullable=False)])


def check_record(record: Any) -> None:
    """Raise ValueError unless this is the record of an image with captions."""
    texts = [record.get(name) for name in _NAMES] if isinstance(record, dict) else [None]
    captions = record.get("captions") if isinstance(record, dict) else None
    for caption in captions if isinstance(captions, list) else [None]:
        texts += [caption.get(name) for name in _CAPTION] if isinstance(caption, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("is not image_id, image, split and captions, a list of objects with caption_id and text")


def as_table(records: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the records of a shard's images as a table."""
    return pa.Table.from_pylist(list(records), schema=_SCHEMA)


def write_table(shard: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write the table of a shard, in the order of its samples."""
    with open_atomic(table_path(shard)) as file:
        pq.write_table(as_table(records), file, compression="zstd")


def read_table(shard: Path) -> pa.Table:
    """Read the table of a shard; ShardError if it is damaged."""
    path = table_path(shard)
    with damage_as(ShardError, f"the captions {path} cannot be read", FIX):
        table = pq.read_table(path, partitioning=None)
        if table.schema != _SCHEMA:
            raise ValueError("its columns are not image_id, image, split and captions")
        table.validate(full=True)
        return table
