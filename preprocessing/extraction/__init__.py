"""From records to feature shards."""

from preprocessing.extraction.extract import (
    FORMAT,
    KILLED,
    ShardSpec,
    archive_specs,
    extract_shard,
    shard_specs,
)
from preprocessing.extraction.file_hashes import FileHashes
from preprocessing.extraction.identity import SplitSummary, relative_uri, summarize

__all__ = [
    "FORMAT",
    "KILLED",
    "FileHashes",
    "ShardSpec",
    "SplitSummary",
    "archive_specs",
    "extract_shard",
    "relative_uri",
    "shard_specs",
    "summarize",
]
