"""The shards that training reads: all of them on this machine where they fit, else a window of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import StageError
from preprocessing.shards import ShardError, ShardReader, read_index

# Shards a process has mapped besides the window it reads and the one that comes after it.
_SPARE = 2


@contextmanager
def open_splits(
    config: PipelineConfig, train: Path, evaluation: Path, *graphs: Path | None
) -> Iterator[tuple[ShardReader, ShardReader]]:
    """Open readers of the training and the evaluation split for the block.

    Where a storage has the shards and `storage.cache_gb` is too small for them, only those of the training split are
    copied as they are needed; the rest, with the directories of captions' graphs, has to fit. Raises StageError where
    the order of the samples needs more shards at a time than the limit allows, ShardError where a shard is missing or
    does not match its sidecar, StorageError where the storage does not answer or the limit leaves no room.
    """
    mirror, feature = config.mirror, config.features.member
    others = (evaluation, *(path for path in graphs if path is not None))
    sizes = _shard_bytes(config, train)
    other_bytes = sum(sum(_shard_bytes(config, directory).values()) for directory in others)
    if mirror.limit is None or sum(sizes.values()) + other_bytes <= mirror.limit:
        with mirror.pinned(train, *others):
            yield ShardReader(train, feature, verify=True), ShardReader(evaluation, feature, verify=True)
        return
    window = _window(config, sizes, mirror.limit - other_bytes)
    with mirror.pinned(*others):
        mirror.pull(train, lambda name: name.endswith(".json"))
        _require_stored(train, sizes)
        yield (
            ShardReader(train, feature, 2 * window + _SPARE, verify=True, pin=mirror.pinned_shard),
            ShardReader(evaluation, feature, verify=True),
        )


def _shard_bytes(config: PipelineConfig, directory: Path) -> dict[str, int]:
    """Return the sizes of a directory's shards on the storage, by name."""
    return {name: size for name, size in config.mirror.stored(directory).items() if name.endswith(".tar")}


def _window(config: PipelineConfig, sizes: dict[str, int], room: int) -> int:
    """Return the number of shards that samples are drawn from; two such windows have to fit."""
    window, largest = config.training.shuffle_shards, max(sizes.values())
    most = (room // largest - _SPARE) // 2
    if most < 1:
        raise StageError(
            f"train: storage.cache_gb {config.storage.cache_gb:g} leaves {max(room, 0):,} bytes for shards of up to "
            f"{largest:,}; training needs {2 + _SPARE} of them at a time: raise it"
        )
    if window is None or window > most:
        drawn = "from all shards" if window is None else f"from {window} shards at a time (training.shuffle_shards)"
        raise StageError(
            f"train: samples are drawn {drawn}, which storage.cache_gb {config.storage.cache_gb:g} has no room for; "
            f"the split {config.dataset.train_split} takes {sum(sizes.values()):,} bytes: set training.shuffle_shards "
            f"to {most} or less, or raise storage.cache_gb"
        )
    return window


def _require_stored(directory: Path, sizes: dict[str, int]) -> None:
    """Compare the storage with all sidecars, before hours of training find a shard missing or of another size."""
    for sidecar in sorted(directory.glob("shard-*.json")):
        index = read_index(sidecar)
        if sizes.get(index.shard) != index.bytes:
            found = f"{sizes[index.shard]} bytes" if index.shard in sizes else "nothing"
            raise ShardError(
                f"shard {directory / index.shard} should have {index.bytes} bytes, the storage has {found}: run "
                "`python pipelines/extract.py --verify` with the same options, which makes such shards again"
            )
