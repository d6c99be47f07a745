"""Shards of an earlier version of a split are taken over where they hold the same: only what is new is made.

A directory holds one version of a split, under the fingerprint of all its records. Records that are appended leave the
shards before the last one as they were; the new directory has those under the same names, as links to the same files,
on a storage as copies that the server makes. Which version was the last is noted beside the directories.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.runtime.stage import StageDir
from pipelines.stages.shard_work import ShardedSplit, is_whole
from preprocessing.shards import read_index
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import sidecar_path

_THREADS = 8

Beside = Callable[[Path], Path]


@dataclass(frozen=True)
class Version:
    """What decides the shards of a version of a split.

    Attributes:
        settings: fingerprint of what decides them besides the data: versions of the same can have shards in common.
        contents: name of each shard -> fingerprint of all that decides its bytes.
    """

    settings: str
    contents: Mapping[str, str]


def take_over(split: ShardedSplit, version: Version, beside: Beside | None = None) -> int:
    """Take over from the last version of a split what this one has in common with it; return how many shards that are.

    The second start of a run that was killed counts what the first one took.

    Args:
        split: with its directory, which is made.
        version: what decides its shards.
        beside: names a file that belongs to a shard, besides its sidecar.

    Raises:
        StorageError: the storage does not answer.
    """
    directory, mirror = split.directory, split.directory.mirror
    directory.create()
    note = directory.path.parent / f"newest-{version.settings[:16]}.json"
    last = _read(mirror.read(note))
    if last is not None and last["fingerprint"] == directory.fingerprint:
        return len(last["taken"])
    common: list[str] = []
    if last is not None:
        earlier = replace(directory, fingerprint=last["fingerprint"])
        same = [name for name, content in version.contents.items() if last["contents"].get(name) == content]
        common = _whole(earlier, same, beside)
        missing = {path.name for path in split.missing()}
        _take(earlier, directory, missing.intersection(common), beside)
    # Before anything is made: what a killed run has made counts as well, should the split have grown again meanwhile.
    content = {"fingerprint": directory.fingerprint, "contents": dict(version.contents), "taken": common}
    write_json_atomic(note, content)
    mirror.push(note)
    return len(common)


def _read(data: bytes | None) -> dict[str, Any] | None:
    """The note on the last version; None where there is none."""
    note: dict[str, Any] | None = None if data is None else json.loads(data)
    return note


def _whole(earlier: StageDir, names: list[str], beside: Beside | None) -> list[str]:
    """Those of the shards that an earlier directory has as a whole."""
    if earlier.mirror.address is not None:
        stored = earlier.stored()
        return [name for name in names if {file.name for file in _files(earlier.path / name, beside)} <= stored]
    return [
        name
        for name in names
        if is_whole(earlier.path / name, earlier.fingerprint)
        and all(file.is_file() for file in _files(earlier.path / name, beside))
    ]


def _take(earlier: StageDir, directory: StageDir, names: Collection[str], beside: Beside | None) -> None:
    """Have shards of an earlier directory in this one."""
    sidecars = {sidecar_path(Path(name)).name for name in names}
    earlier.pull(lambda name: name in sidecars)

    def take(name: str) -> None:
        """One shard; its sidecar, which says that it is whole, comes last."""
        *files, sidecar = _files(directory.path / name, beside)
        for file in files:
            directory.mirror.copy(earlier.path / file.name, file)
        index = replace(read_index(earlier.path / name), fingerprint=directory.fingerprint)
        write_json_atomic(sidecar, index.to_json())
        directory.mirror.push(sidecar)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(take, names))


def _files(shard: Path, beside: Beside | None) -> tuple[Path, ...]:
    """The files of a shard, its sidecar as the last one."""
    return (shard, *([] if beside is None else [beside(shard)]), sidecar_path(shard))
