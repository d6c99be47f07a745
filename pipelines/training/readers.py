"""The shards that training reads: all of them on this machine if they fit, else a window of them at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError, check_outputs
from preprocessing.captions.token_table import TokenTable
from preprocessing.shards.index import ShardError, read_index
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.split_index import SplitIndex, map_fields
from preprocessing.storage.mirror import Mirror

# Shards a process has mapped besides the window it reads and the one that comes after it.
_SPARE = 2


@contextmanager
def open_captions(
    mirror: Mirror, feature: str, shuffle_shards: int | None, train: SplitPaths, evaluation: SplitPaths
) -> Iterator[tuple[SplitData, SplitData]]:
    """Open the captions of the training and the evaluation split for the block; tars stay on the storage, if any.

    Raises StageError if the order of the samples needs more shards at a time than `storage.cache_gb` allows,
    ShardError if a shard is missing or does not match its sidecar, DigestError if a sidecar or a table of
    captions was changed, StorageError if the storage does not answer.
    """
    _window(mirror, shuffle_shards, train, evaluation)
    graphs = _graphs(train, evaluation)
    with mirror.pinned(*graphs):
        for split in (train, evaluation):
            mirror.pull(split.shards, lambda name: not name.endswith(".tar"))
        check_outputs(train.shards, evaluation.shards, *graphs)
        pin = None if mirror.address is None else mirror.pinned_shard
        if pin is not None:
            _require_stored(mirror, train.shards)
        readers = [ShardReader(split.shards, feature, pin=pin) for split in (train, evaluation)]
        yield SplitData(readers[0], train.graphs), SplitData(readers[1], evaluation.graphs)


def split_reader(mirror: Mirror, shards: Path, feature: str) -> ShardReader:
    """Open a split to be read in its order; a tar that only the storage has is copied when its images are asked for.

    Few are on this machine at a time, as many splits are larger than `storage.cache_gb`. Raises as
    :func:`open_captions`, and ShardError if a sample does not match its checksum.
    """
    mirror.pull(shards, lambda name: not name.endswith(".tar"))
    streamed: dict[str, Any] = {} if mirror.address is None else {"max_open_shards": _SPARE, "pin": mirror.pinned_shard}
    return ShardReader(shards, feature, verify=True, **streamed)


@contextmanager
def open_splits(
    mirror: Mirror, feature: str, shuffle_shards: int | None, train: SplitPaths, evaluation: SplitPaths
) -> Iterator[tuple[SplitData, SplitData]]:
    """Open readers of a feature of the training and the evaluation split for the block, by their tables.

    If a storage has the shards and `storage.cache_gb` is too small for them, only those of the training split are
    copied as they are needed; the rest has to fit. Raises as :func:`open_captions`, and ShardError if a table is
    damaged.
    """
    window = _window(mirror, shuffle_shards, train, evaluation)
    tables = [split.tables for split in (train, evaluation) if split.tables is not None]
    with mirror.pinned(evaluation.shards, *tables, *([train.shards] if window is None else [])):
        streamed: dict[str, Any] = {}
        if window is not None:
            streamed = {"max_open_shards": 2 * window + _SPARE, "pin": mirror.pinned_shard}
        yield _opened(train, feature, window is None, **streamed), _opened(evaluation, feature, True)


def _opened(split: SplitPaths, feature: str, are_here: bool, **streamed: Any) -> SplitData:
    assert split.tables is not None, "made before the training processes start"
    index = SplitIndex.load(split.tables, split.shards, are_here=are_here)
    reader = ShardReader(split.shards, feature, verify=True, index=index, **streamed)
    return SplitData(reader, tokens=TokenTable(**map_fields(TokenTable, split.tables)), tables=split.tables)


def _graphs(*splits: SplitPaths) -> list[Path]:
    return [split.graphs for split in splits if split.graphs is not None]


def _shard_bytes(mirror: Mirror, directory: Path) -> dict[str, int]:
    return {name: entry.bytes for name, entry in mirror.stored(directory).items() if name.endswith(".tar")}


def _window(mirror: Mirror, window: int | None, train: SplitPaths, evaluation: SplitPaths) -> int | None:
    """Return the number of shards that samples are drawn from, two of which have to fit; None if all shards fit."""
    if mirror.limit is None:
        return None
    sizes, limit = _shard_bytes(mirror, train.shards), mirror.limit
    others = (evaluation.shards, *_graphs(train, evaluation))
    other_bytes = sum(sum(_shard_bytes(mirror, directory).values()) for directory in others)
    if sum(sizes.values()) + other_bytes <= limit:
        return None
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


def _require_stored(mirror: Mirror, directory: Path) -> None:
    """Compare the storage with all sidecars, before hours of training find a shard missing or of another size."""
    sizes = _shard_bytes(mirror, directory)
    for sidecar in sorted(directory.glob("shard-*.json")):
        index = read_index(sidecar)
        if sizes.get(index.shard) != index.bytes:
            found = f"{sizes[index.shard]} bytes" if index.shard in sizes else "nothing"
            raise ShardError(
                f"shard {directory / index.shard} should have {index.bytes} bytes, the storage has {found}: run "
                f"`{command('extract', '--verify')}` with the same options, which makes such shards again"
            )
