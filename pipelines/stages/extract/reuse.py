"""Shards of an earlier version of a split are reused where they contain the same: only what is new is made.

A directory holds one version of a split, under the fingerprint of all its records. Appended records leave the shards
before the last one unchanged; the new directory has those under the same names, as links to the same files, on a
storage as copies that the server makes. A file next to the directories names the newest version.
"""

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.runtime.stage import ShardSet, StageDir, StageError
from pipelines.stages.extract.shards import Extra, is_complete, missing_shards, shard_files
from preprocessing.reading import parse_json, reason
from preprocessing.shards import read_index
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import sidecar_path, table_path
from vse_core.digests import sealed, unsealed

log = logging.getLogger(__name__)

_THREADS = 8


@dataclass(frozen=True)
class Version:
    """The identities of the shards of one version of a split.

    Versions of the same `settings`, the fingerprint of what decides the shards besides the data, can have shards in
    common; `contents` has the fingerprint of all that decides the bytes of each.
    """

    settings: str
    contents: Mapping[str, str]


def reuse_shards(shards: ShardSet, version: Version, extra: Extra | None = None) -> int:
    """Reuse the shards that a split has in common with its last version; return their number.

    The second start of a killed run counts the shards that the first one reused. Raises StorageError if the storage
    does not answer.
    """
    directory, mirror = shards.directory, shards.directory.mirror
    directory.create()
    record = directory.path.parent / f"newest-{version.settings[:16]}.json"
    last = _read(mirror.read(record), record)
    if last is not None and last["fingerprint"] == directory.fingerprint:
        return len(last["taken"])
    common: list[str] = []
    if last is not None:
        earlier = replace(directory, fingerprint=require_inner_name(last["fingerprint"], str(record), StageError))
        same = [name for name, content in version.contents.items() if last["contents"].get(name) == content]
        common = _complete(earlier, same, extra)
        missing = {path.name for path in missing_shards(directory, shards.paths, extra)}
        _copy(earlier, directory, missing.intersection(common), extra)
    # Before anything is made: the shards of a killed run count as well, if the split grows again before the next start.
    content = {"fingerprint": directory.fingerprint, "contents": dict(version.contents), "taken": common}
    write_json_atomic(record, sealed(content))
    mirror.push(record)
    return len(common)


class _Newest(BaseModel):
    """The newest version of a split: where it is, its shards' identities, and the shards it reused."""

    fingerprint: str
    contents: dict[str, str]
    taken: list[str]


def _read(data: bytes | None, record: Path) -> dict[str, Any] | None:
    """Return the newest version; None where there is none, or a damaged record: then shards are made, not reused."""
    if data is None:
        return None
    try:
        return _Newest.model_validate(unsealed(parse_json(data), record)).model_dump()
    except ValueError as error:
        log.warning("%s is damaged (%s): no shard of an earlier version is reused", record, reason(error))
        return None


def _complete(earlier: StageDir, names: list[str], extra: Extra | None) -> list[str]:
    """Return those of the shards that are complete in an earlier directory."""
    if earlier.mirror.address is not None:
        stored = earlier.stored()
        return [name for name in names if {file.name for file in shard_files(earlier.path / name, extra)} <= stored]
    return [name for name in names if is_complete(earlier.path / name, earlier.fingerprint, extra)]


def _copy(earlier: StageDir, directory: StageDir, names: Collection[str], extra: Extra | None) -> None:
    """Copy or link shards of an earlier directory into this one."""
    sidecars = {sidecar_path(Path(name)).name for name in names}
    earlier.pull(lambda name: name in sidecars)

    def copy(name: str) -> None:
        """Copy one shard; its sidecar, which declares it complete, comes last."""
        *files, sidecar = shard_files(directory.path / name, extra)
        table = table_path(directory.path / name)
        for file in (*files, *([table] if directory.mirror.has(earlier.path / table.name) else [])):
            directory.mirror.copy(earlier.path / file.name, file)
        index = replace(read_index(earlier.path / name), fingerprint=directory.fingerprint)
        write_json_atomic(sidecar, index.to_json())
        directory.mirror.push(sidecar)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(copy, names))
