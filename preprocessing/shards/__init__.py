"""Feature shards: tar files with a sidecar index, written once and read at random.

``batch`` and ``loader`` need torch and are imported by their own names; everything here does without it.
"""

from preprocessing.loading.sampler import BatchSampler, rank_slice
from preprocessing.shards.index import ShardError, ShardIndex, read_index, verify_shard
from preprocessing.shards.reader import ShardReader, read_arrays
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_bytes_atomic, write_json_atomic

__all__ = [
    "BatchSampler",
    "Sample",
    "ShardError",
    "ShardIndex",
    "ShardReader",
    "rank_slice",
    "read_arrays",
    "read_index",
    "verify_shard",
    "write_bytes_atomic",
    "write_json_atomic",
    "write_shard",
]
