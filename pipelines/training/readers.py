"""The shards that training reads: all of them on this machine where they fit, else a window of them at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.runtime.stage import StageError, check_outputs
from preprocessing.shards import ShardError, ShardReader, read_index
from preprocessing.storage import Mirror

# Shards a process has mapped besides the window it reads and the one that comes after it.
_SPARE = 2


@contextmanager
def open_splits(
    mirror: Mirror, feature: str, shuffle_shards: int | None, train: SplitPaths, evaluation: SplitPaths
) -> Iterator[tuple[SplitData, SplitData]]:
    """Open readers of a feature of the training and the evaluation split for the block.

    Where a storage has the shards and `storage.cache_gb` is too small for them, only those of the training split are
    copied as they are needed; the rest, with the directories of captions' graphs, has to fit. Raises StageError where
    the order of the samples needs more shards at a time than the limit allows, ShardError where a shard is missing or
    does not match its sidecar, DigestError where a sidecar was changed, StorageError where the storage does not answer
    or the limit leaves no room.
    """
    others = [path for path in (evaluation.shards, train.graphs, evaluation.graphs) if path is not None]
    sizes = _shard_bytes(mirror, train.shards)
    other_bytes = sum(sum(_shard_bytes(mirror, directory).values()) for directory in others)
    if mirror.limit is None or sum(sizes.values()) + other_bytes <= mirror.limit:
        with mirror.pinned(train.shards, *others):
            check_outputs(train.shards, *others)
            yield _verified(train, feature), _verified(evaluation, feature)
        return
    window = _window(shuffle_shards, sizes, mirror.limit, other_bytes)
    with mirror.pinned(*others):
        mirror.pull(train.shards, lambda name: name.endswith((".json", ".parquet")))
        check_outputs(train.shards, *others)
        _require_stored(train.shards, sizes)
        reader = ShardReader(train.shards, feature, 2 * window + _SPARE, verify=True, pin=mirror.pinned_shard)
        yield SplitData(reader, train.graphs), _verified(evaluation, feature)


def _verified(split: SplitPaths, feature: str) -> SplitData:
    return SplitData(ShardReader(split.shards, feature, verify=True), split.graphs)


def _shard_bytes(mirror: Mirror, directory: Path) -> dict[str, int]:
    """Return the sizes of a directory's shards on the storage, by name."""
    return {name: size for name, size in mirror.stored(directory).items() if name.endswith(".tar")}


def _window(window: int | None, sizes: dict[str, int], limit: int, other_bytes: int) -> int:
    """Return the number of shards that samples are drawn from; two such windows have to fit."""
    largest, room, cache_gb = max(sizes.values()), limit - other_bytes, limit / 1e9
    most = (room // largest - _SPARE) // 2
    if most < 1:
        raise StageError(
            f"train: storage.cache_gb {cache_gb:g} leaves {max(room, 0):,} bytes for shards of up to "
            f"{largest:,}; training needs {2 + _SPARE} of them at a time: raise it"
        )
    if window is None or window > most:
        drawn = "from all shards" if window is None else f"from {window} shards at a time (training.shuffle_shards)"
        raise StageError(
            f"train: samples are drawn {drawn}, which storage.cache_gb {cache_gb:g} has no room for; "
            f"dataset.train_split takes {sum(sizes.values()):,} bytes: set training.shuffle_shards "
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
