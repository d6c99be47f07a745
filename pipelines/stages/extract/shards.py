"""The shards of a stage: which are complete, their plan, their progress, and those of an earlier version that stay.

A directory holds one version of a split, under the fingerprint of all its records. Appended records leave the shards
before the last one unchanged; the new directory has those under the same names, as links to the same files; on a
storage it names them where they are. A file next to the directories names the newest version of each data set.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import ShardSet, StageDir, StageError, StagePlan, fingerprint
from pipelines.tracking import Tracker
from preprocessing.reading import parse_json, reason
from preprocessing.shards.index import ShardError, read_index, verify_shard
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.atomic import link_atomic, write_json_atomic
from preprocessing.storage.base import Entry
from preprocessing.storage.elsewhere import named_elsewhere
from preprocessing.storage.mirror import REMOVED, sidecar_path, table_path
from vse_core.digests import sealed, unsealed

log = logging.getLogger(__name__)

# Versions of other data sets that are remembered; nothing keeps them from being pruned.
_OTHERS = 7
# The path of a file that belongs to a shard besides its sidecar.
Extra = Callable[[Path], Path]


def shard_plan(
    name: str,
    root: Path,
    splits: Mapping[str, ShardSet],
    made: Callable[[], str],
    to_make: str,
    extra: Extra | None = None,
) -> StagePlan:
    """Return the plan of a stage that makes shards, whose directories by split are its `outputs`.

    `made` summarises a complete output in a line, `to_make` is a line about the work.
    """
    total = sum(len(shards.paths) for shards in splits.values())
    done = total - sum(len(missing_shards(shards.directory, shards.paths, extra)) for shards in splits.values())
    complete = done == total and all(shards.directory.is_complete() for shards in splits.values())
    return StagePlan(
        name=name,
        fingerprint=fingerprint([shards.fingerprint for shards in splits.values()]),
        directory=root / name,
        total=total,
        # All shards without their manifest: the stage still has to write it.
        done=total if complete else min(done, total - 1),
        unit="shards",
        size=made() if complete else to_make,
        outputs={split: shards.directory.path for split, shards in splits.items()},
        shards=splits,
    )


def missing_shards(directory: StageDir, shards: Iterable[Path], extra: Extra | None = None) -> list[Path]:
    """Return the shards that are not complete, neither here nor on the storage."""
    stored = directory.mirror.stored(directory.path)
    # The listing of the storage answers for most shards; only for the others is a sidecar read, which takes longer.
    return [
        path
        for path in shards
        if not (_is_among(stored, path, extra) or is_complete(path, directory.fingerprint, extra))
    ]


def shard_files(shard: Path, extra: Extra | None = None) -> tuple[Path, ...]:
    """Return the files of a shard, its sidecar as the last one."""
    return (shard, *([] if extra is None else [extra(shard)]), sidecar_path(shard))


def _is_among(stored: Container[str], shard: Path, extra: Extra | None) -> bool:
    return all(file.name in stored for file in shard_files(shard, extra))


def is_complete(shard: Path, expected: str, extra: Extra | None = None) -> bool:
    """Return whether a shard is here as its sidecar describes it, and of the inputs with this fingerprint.

    One that is named in its folder and lies in an earlier version's has that one's fingerprint.
    """
    try:
        is_own = verify_shard(shard, deep=False).fingerprint == expected
        return (is_own or shard.name in named_elsewhere(shard.parent)) and (extra is None or extra(shard).is_file())
    except ShardError:
        return False


def track_progress(done: Iterable[int], total: int | None, stage: str, unit: str, tracker: Tracker) -> None:
    """Show the progress of a stage as the units of finished pieces, and log ``STAGE/UNIT_per_second``."""
    with progress_bar(stage, total, unit) as bar:
        start = time.monotonic()
        for count in done:
            bar.update(count)
            tracker.log_metrics({f"{stage}/{unit}_per_second": bar.n / (time.monotonic() - start)}, step=bar.n)


@dataclass(frozen=True)
class Version:
    """The identities of a split's shards: `contents` decide the bytes of each.

    Versions of the same `settings`, what decides shards besides the data, can have shards in common.
    """

    settings: str
    contents: Mapping[str, str]


def reuse_shards(shards: ShardSet, version: Version, extra: Extra | None = None) -> int:
    """Reuse the shards that a split has in common with its last version; return their number.

    The last version is the one with most shards in common: data sets may take turns in a work folder. The second start
    of a killed run counts the shards of the first one. Raises StorageError if the storage does not answer.
    """
    directory, mirror = shards.directory, shards.directory.mirror
    directory.create()
    record = directory.path.parent / f"newest-{version.settings[:16]}.json"
    known = _read(mirror.read(record), record)
    if known and known[0].fingerprint == directory.fingerprint:
        return len(known[0].taken)
    mirror.drop(directory.path / REMOVED)
    same = {each.fingerprint: each.common(version) for each in known}
    last = max(same, key=lambda name: len(same[name]), default="")
    common = _take(last, same[last], shards, record, extra) if last else []
    # Before anything is made: the shards of a killed run count as well, if the split grows again before the next start.
    others = [each for each in known if not same[each.fingerprint]][:_OTHERS]
    newest = _Newest(fingerprint=directory.fingerprint, contents=dict(version.contents), taken=common, others=others)
    write_json_atomic(record, sealed(newest.model_dump()))
    mirror.push(record)
    return len(common)


def _take(last: str, same: Collection[str], shards: ShardSet, record: Path, extra: Extra | None) -> list[str]:
    """Have those of the shards with the same contents that the last version has whole; return their names."""
    directory, mirror = shards.directory, shards.directory.mirror
    earlier = replace(directory, fingerprint=require_inner_name(last, str(record), StageError))
    missing = {path.name for path in missing_shards(directory, shards.paths, extra)}
    if mirror.address is None:
        common = [name for name in same if is_complete(earlier.path / name, earlier.fingerprint, extra)]
        _link(earlier, directory, missing.intersection(common), extra)
    else:
        stored = mirror.stored(earlier.path)
        common = [name for name in same if _is_among(stored, earlier.path / name, extra)]
        _share(earlier, directory, missing.intersection(common), stored, extra)
    return common


class _Version(BaseModel):
    """A version of a split: where it is, its shards' identities, and the shards it reused."""

    fingerprint: str
    contents: dict[str, str]
    taken: list[str]

    def common(self, version: Version) -> list[str]:
        """Return the names of the shards with the same contents."""
        return [name for name, content in version.contents.items() if self.contents.get(name) == content]


class _Newest(_Version):
    """The newest version of a split, and the newest ones of data sets that have no shard in common with it."""

    others: list[_Version] = []


def _read(data: bytes | None, record: Path) -> list[_Version]:
    """Return the known versions, the newest first; none from a damaged record: then shards are made, not reused."""
    if data is None:
        return []
    try:
        newest = _Newest.model_validate(unsealed(parse_json(data), record))
    except ValueError as error:
        log.warning("%s is damaged (%s): no shard of an earlier version is reused", record, reason(error))
        return []
    return [newest, *newest.others]


def _share(
    earlier: StageDir,
    directory: StageDir,
    names: Collection[str],
    stored: Mapping[str, Entry],
    extra: Extra | None,
) -> None:
    """Have the shards where they are on the storage; their sidecars keep the fingerprint that they were made with."""
    files = {file.name for name in names for file in (*shard_files(Path(name), extra), table_path(Path(name)))}
    shared = {name: entry for name, entry in stored.items() if name in files}
    if shared:
        earlier.mirror.share(earlier.path, directory.path, shared)


def _link(earlier: StageDir, directory: StageDir, names: Collection[str], extra: Extra | None) -> None:
    for name in names:
        # The sidecar, which declares a shard complete, comes last.
        *files, sidecar = shard_files(directory.path / name, extra)
        table = table_path(directory.path / name)
        for file in (*files, *([table] if (earlier.path / table.name).is_file() else [])):
            link_atomic(earlier.path / file.name, file)
        index = replace(read_index(earlier.path / name), fingerprint=directory.fingerprint)
        write_json_atomic(sidecar, index.to_json())
