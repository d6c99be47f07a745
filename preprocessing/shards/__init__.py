"""The file format: feature shards are tar files with a sidecar index, written once and read at random."""

from preprocessing.shards.index import ShardError, ShardIndex, read_index, verify_shard

__all__ = ["ShardError", "ShardIndex", "read_index", "verify_shard"]
