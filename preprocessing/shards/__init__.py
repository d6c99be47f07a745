"""The file format: feature shards are tar files with a sidecar index, written once and read at random."""

from preprocessing.shards.index import ShardError, ShardIndex, read_index, verify_shard
from preprocessing.shards.reader import ShardReader, read_arrays
from preprocessing.shards.writer import Sample, Skipped, write_shard

__all__ = [
    "Sample",
    "ShardError",
    "ShardIndex",
    "ShardReader",
    "Skipped",
    "read_arrays",
    "read_index",
    "verify_shard",
    "write_shard",
]
