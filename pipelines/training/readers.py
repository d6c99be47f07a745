"""The shards that training reads: all on this machine where they fit, else a window of them at a time."""

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
    """Readers of the training and the evaluation split for as long as the block lasts.

    Where a storage has the shards and `storage.cache_gb` is too small for them, only those of the training split are
    copied as they are needed; the rest has to fit.

    Args:
        config: the pipeline's configuration.
        train: directory of features.
        evaluation: directory of features.
        graphs: directories of captions' graphs, to be here as well; None for a split that has none.

    Raises:
        StageError: the order of the samples needs more shards at a time than the limit allows.
        ShardError: a shard is missing, or is not as its sidecar says.
        StorageError: the storage does not answer, or the limit leaves no room.
    """
    mirror, member = config.mirror, config.features.member
    others = (evaluation, *(path for path in graphs if path is not None))
    sizes = _shard_bytes(config, train)
    beside = sum(sum(_shard_bytes(config, directory).values()) for directory in others)
    if mirror.limit is None or sum(sizes.values()) + beside <= mirror.limit:
        with mirror.pinned(train, *others):
            yield ShardReader(train, member, verify=True), ShardReader(evaluation, member, verify=True)
        return
    window = _window(config, sizes, mirror.limit - beside)
    with mirror.pinned(*others):
        mirror.pull(train, lambda name: name.endswith(".json"))
        _require_stored(train, sizes)
        yield (
            ShardReader(train, member, 2 * window + _SPARE, verify=True, pin=mirror.pinned_shard),
            ShardReader(evaluation, member, verify=True),
        )


def _shard_bytes(config: PipelineConfig, directory: Path) -> dict[str, int]:
    """Sizes of the shards that the storage has of a directory, by name."""
    return {name: size for name, size in config.mirror.stored(directory).items() if name.endswith(".tar")}


def _window(config: PipelineConfig, sizes: dict[str, int], room: int) -> int:
    """The shards that samples are drawn from at a time.

    Raises:
        StageError: two such windows, the second on its way while the first is read, do not fit.
    """
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
    """Compare what the storage has with all sidecars, before hours of training find it out.

    Raises:
        ShardError: a shard is not there, or has another size.
    """
    for sidecar in sorted(directory.glob("shard-*.json")):
        index = read_index(sidecar)
        if sizes.get(index.shard) != index.bytes:
            found = f"{sizes[index.shard]} bytes" if index.shard in sizes else "nothing"
            raise ShardError(
                f"shard {directory / index.shard} should have {index.bytes} bytes, the storage has {found}: run "
                "`python pipelines/extract.py --verify` with the same options, which makes such shards anew"
            )
