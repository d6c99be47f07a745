"""A work folder whose files are also kept on a storage: this machine's copies are a cache, another can resume."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.atomic import link_atomic, locked, sync_directory, write_json_atomic
from preprocessing.storage.base import Entry, LocalStorage, StorageError
from preprocessing.storage.elsewhere import ELSEWHERE, named_elsewhere, parse_list
from preprocessing.storage.opening import open_storage

if TYPE_CHECKING:
    from preprocessing.storage.s3 import S3Storage

# Lists a folder's files, is written last and deleted first: without it the folder is not there.
CONTENTS = "contents.json"
# In a folder that was removed but for what others have there; who makes the folder again drops it.
REMOVED = "removed"
# Lists what a stage has made with its digests, and is written last.
_MANIFEST = "manifest.json"

_THREADS = 8
_SHARD = "shard-"
# Only these are removed to make room: sidecars, manifests and models are small.
_SHARDS = f"**/{_SHARD}*.tar"
_LOCKS, _RESERVED = "locks", ".reserved"
_IN_USE, _PULLING, _MAKING_ROOM = "in-use", "pulling", "making-room"
# Earlier versions kept the lease of a folder inside it, where it may still lie.
_EARLIER_LEASE = "lease.json"


def sidecar_path(shard: Path) -> Path:
    """Return the sidecar of a shard, from the path of the tar (or of the sidecar itself)."""
    return shard.with_suffix(".json")


def table_path(shard: Path) -> Path:
    """Return the table of a shard's captions, which shards of earlier versions lack."""
    return shard.with_suffix(".parquet")


def lock_file(root: Path, path: Path, use: str) -> Path:
    """Return the file that locks a path of a work folder for a use, and make the folder that it lies in.

    Locks have a tree of their own, ``<root>/locks/<path>/<use>.lock``: folders hold their outputs and nothing else.
    """
    folder = root / _LOCKS / path.relative_to(root)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{use}.lock"


def remove_locks(root: Path, path: Path) -> None:
    """Remove the files that lock a path of a work folder, but those that a process holds, or another machine's may."""
    folder = root / _LOCKS / path.relative_to(root)
    for found in [*sorted(folder.rglob("*"), reverse=True), folder]:
        with contextlib.suppress(OSError):  # it is held or not empty, or another process removes it as well
            if found.is_dir():
                found.rmdir()
            elif found.suffix != ".json":  # the name of a holder, who removes it
                with locked(found, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR):
                    found.unlink()


@dataclass(frozen=True)
class Mirror:
    """A work folder and the storage behind it, with each file under its name relative to the folder; plain values.

    The caller says when a file is finished (:meth:`push`) and when it is needed here (:meth:`pinned`); in between,
    copies of the least recently used shards make room for others. Without an address everything here does nothing.
    If the storage does not answer or refuses, methods raise StorageError.

    Attributes:
        root: the work folder.
        address: of the storage, ``s3://bucket/folder`` or a folder that all machines see; None keeps no copies.
        limit: bytes of shards that this machine keeps in the work folder; None keeps all.
        is_read_only: nothing is copied to this machine or removed from it, as in a dry run.
        lease_seconds: a lock that another machine has not renewed for this long has expired.
    """

    root: Path = Path()
    address: str | None = None
    limit: int | None = None
    is_read_only: bool = False
    lease_seconds: float = 120.0

    def push(self, *paths: Path) -> None:
        """Copy finished files to the storage, in this order; what was there under their names is replaced."""
        if self.address is not None:
            for path in paths:
                # Nobody makes room with a file whose copy is still being checked.
                with locked(path, fcntl.LOCK_SH, os.O_RDONLY):
                    self._storage.upload(path, self._name(path))

    def push_snapshot(self, path: Path) -> None:
        """Copy a file to the storage as it is now, while more is added to it."""
        if self.address is not None:
            with tempfile.TemporaryDirectory() as elsewhere:
                self._storage.upload(Path(shutil.copyfile(path, Path(elsewhere) / path.name)), self._name(path))

    def write(self, path: Path, content: object) -> None:
        """Write a JSON file on the storage; the one here stays as it is."""
        if self.address is not None:
            with tempfile.TemporaryDirectory() as elsewhere:
                file = Path(elsewhere) / path.name
                write_json_atomic(file, content)
                self._storage.upload(file, self._name(path))

    def has(self, path: Path) -> bool:
        """Return whether a file is on the storage; without one, here."""
        return path.is_file() if self.address is None else self._find(path) is not None

    def pull_file(self, path: Path) -> None:
        """Copy one file to this machine if the storage has it and this machine lacks it."""
        if self.address is not None and not self.is_read_only:
            entry = self._find(path)
            if entry is not None:
                self._pull_one(path, entry)

    def read(self, path: Path) -> bytes | None:
        """Return the contents of a small file on the storage; without one, in the work folder. None: no such file."""
        try:
            return path.read_bytes() if self.address is None else self._storage.read(self._name(path))
        except FileNotFoundError:
            return None

    def share(self, source: Path, directory: Path, shared: Mapping[str, Entry]) -> None:
        """Name files that are `stored` in one directory in another one, which has them from then on, here as links."""
        for name, entry in shared.items():
            if _size(source / name) == entry.bytes:
                with contextlib.suppress(FileNotFoundError):  # it has just made room
                    link_atomic(source / name, directory / name)
        self._list_elsewhere(directory, {**self.elsewhere(directory), **shared})

    def elsewhere(self, directory: Path) -> dict[str, Entry]:
        """Return the files of a directory that lie in another one, by their names here."""
        path = directory / ELSEWHERE
        if path.is_file():
            return named_elsewhere(directory)
        data = self.read(path)
        return {} if data is None else parse_list(data, f"{self.address}/{self._name(path)}")

    def push_missing(self, directory: Path, names: Iterable[str], stored: Mapping[str, Entry] | None = None) -> None:
        """Copy those files of a directory that are here and that the storage lacks or has in another size.

        It is asked what it has, unless this is known from `stored` or `pull`.
        """
        if self.address is None:
            return
        stored = self.stored(directory) if stored is None else stored
        there = {name: entry.bytes for name, entry in stored.items()}
        missing = [directory / name for name in names if _size(directory / name) not in (None, there.get(name))]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self.push, missing))

    def stored(self, directory: Path) -> dict[str, Entry]:
        """Return the storage's files of a directory by their relative names, with those that lie elsewhere."""
        if self.address is None:
            return {}
        folder = self._name(directory)
        where = f"storage.address {self.address}, {folder}"
        own = {
            require_inner_name(entry.name.removeprefix(f"{folder}/"), where, StorageError): entry
            for entry in self._storage.list(folder)
            if not entry.name.endswith(f"/{_EARLIER_LEASE}")
        }
        if ELSEWHERE not in own:
            return own
        if not self.is_read_only:
            self._pull_one(directory / ELSEWHERE, own[ELSEWHERE])
        there = {entry.name: entry for entry in self._storage.list(self._name(directory.parent))}
        named = {name: there.get(entry.name) for name, entry in self.elsewhere(directory).items()}
        # What is no longer there is made again, here.
        return {name: entry for name, entry in named.items() if entry is not None} | own

    def pull(self, directory: Path, wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Entry]:
        """Copy the files of a directory that this machine lacks, of those wanted; return all that are `stored`.

        One of several processes copies; none does if it may only read.
        """
        stored = self.stored(directory)
        if self.address is not None and not self.is_read_only:
            entries = {directory / name: entry for name, entry in stored.items() if wanted(name)}
            directory.mkdir(parents=True, exist_ok=True)
            if (manifest := directory / _MANIFEST) in entries:  # first: what comes after it need not be compared
                self._pull_one(manifest, entries[manifest])
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(self._pull_one, entries, entries.values()))
        return stored

    @contextlib.contextmanager
    def pinned(self, *directories: Path) -> Iterator[None]:
        """Pin directories: within the block they are on this machine, and no process here removes their shards."""
        with contextlib.ExitStack() as stack:
            if self.address is not None:
                for directory in directories:
                    directory.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(locked(lock_file(self.root, directory, _IN_USE), fcntl.LOCK_SH))
                for directory in directories:
                    self.pull(directory)
            yield

    @contextlib.contextmanager
    def pinned_shard(self, shard: Path) -> Iterator[None]:
        """Pin one shard with its sidecar and its table; raises as :meth:`pinned`."""
        with contextlib.ExitStack() as stack:
            while self.address is not None and not self.is_read_only:
                for path in (sidecar_path(shard), table_path(shard), shard):
                    self.pull_file(path)
                with contextlib.suppress(FileNotFoundError):
                    stack.enter_context(locked(shard, fcntl.LOCK_SH, os.O_RDWR))
                # Another process may have removed it before we had the lock. What is nowhere, its reader will report.
                if shard.exists() or not self.has(shard):
                    break
            yield

    def _pull_one(self, path: Path, entry: Entry) -> None:
        if _size(path) != entry.bytes:
            with self._reserved(path, entry.bytes):
                if _size(path) != entry.bytes:  # no other process has just copied it
                    if path.name == _MANIFEST:
                        self._replace_leftovers(path)
                    self._get(entry, path)
        with contextlib.suppress(FileNotFoundError):  # record its use: many file systems do not by themselves
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def _replace_leftovers(self, manifest: Path) -> None:
        """Replace the files that a process which was killed here has left of what the arriving manifest lists.

        Another machine has finished the work, and its hardware may give other results of the same size.
        """
        digests = _listed_digests(self._storage.read(self._name(manifest)))
        for path in [path for path in manifest.parent.rglob("*") if path.is_file()]:
            expected = digests.get(path.relative_to(manifest.parent).as_posix())
            if expected is not None and _digest(path) != expected and (entry := self._ask(path)) is not None:
                if path.name.startswith(_SHARD) and path == sidecar_path(path):  # its shard has another digest, too
                    path.with_suffix(".tar").unlink(missing_ok=True)
                self._download(self.root / entry.name, path)

    def drop_leftovers(self, shards: Iterable[Path]) -> None:
        """Remove shards here whose sidecars on the storage are others: what a process that was killed here has left.

        Another machine has made them since, and its hardware may give other results of the same size.
        """

        def drop(shard: Path) -> None:
            sidecar = sidecar_path(shard)
            if sidecar.is_file() and self.read(sidecar) not in (None, sidecar.read_bytes()):
                for path in (sidecar, table_path(shard), shard):
                    path.unlink(missing_ok=True)

        if self.address is not None:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(drop, shards))

    def _get(self, entry: Entry, path: Path) -> None:
        """Copy a file to this machine, or link it if this machine has it in another folder."""
        here = self.root / entry.name
        if here != path and _size(here) == entry.bytes:
            with contextlib.suppress(FileNotFoundError):  # it has just made room
                link_atomic(here, path)
                return
        if path.suffix == ".tar":
            self.make_room(must_fit=True)
        self._download(here, path)

    def push_folder(self, directory: Path) -> None:
        """Copy a folder to the storage, where it is complete once its list of contents is there."""
        if self.address is None:
            return
        files = sorted(directory.iterdir())
        self.push(*files)
        self.write(directory / CONTENTS, {path.name: path.stat().st_size for path in files})

    def pull_folder(self, directory: Path) -> None:
        """Copy a folder to this machine, where it appears under its name once it is complete.

        If it is here, and the manifest around it is not yet, that is copied, which replaces what was left here.
        """
        if self.address is None:
            return
        if directory.exists():
            if not (manifest := directory.parent / _MANIFEST).is_file():
                self.pull_file(manifest)
            return
        directory.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock_file(self.root, directory.parent, _PULLING), fcntl.LOCK_EX):
            if directory.exists():  # another process has just done it
                return
            aside = directory.with_name(f".{directory.name}.pulled")
            shutil.rmtree(aside, ignore_errors=True)
            self._download(directory / CONTENTS, aside / CONTENTS)
            stored = f"{self.address}/{self._name(directory)}/{CONTENTS}"
            with damage_as(StorageError, stored, "remove that folder there, and run what makes it again"):
                contents = dict(parse_json((aside / CONTENTS).read_bytes()))
            (aside / CONTENTS).unlink()
            for name in contents:
                require_inner_name(name, stored, StorageError)
                self._download(directory / name, aside / name)
            aside.rename(directory)
            sync_directory(directory.parent)

    def drop(self, *paths: Path) -> None:
        """Remove files here and on the storage, in this order; what lies elsewhere stays there."""
        for path in paths:
            if self.address is not None:
                named = dict(self.elsewhere(path.parent) if path.name.startswith(_SHARD) else {})
                if named.pop(path.name, None) is not None:
                    self._list_elsewhere(path.parent, named)
                self._storage.delete(self._name(path))
            path.unlink(missing_ok=True)

    def drop_folder(self, directory: Path) -> None:
        """Remove a folder from the storage; its copy here stays."""
        if self.address is not None:
            folder = self._name(directory)
            self._storage.delete(f"{folder}/{CONTENTS}")
            for name in self.stored(directory):
                self._storage.delete(f"{folder}/{name}")

    def remove(self, directory: Path) -> None:
        """Remove a folder here and on the storage; one that is killed leaves no part of it that looks complete.

        What other folders have there stays until the last of them goes.
        """
        aside = directory.with_name(f".{directory.name}.removed")
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            directory.rename(aside)
        if self.address is not None:
            self._remove_stored(directory)
        shutil.rmtree(aside, ignore_errors=True)

    def _remove_stored(self, directory: Path) -> None:
        folder = self._name(directory)
        there = {entry.name for entry in self._storage.list(self._name(directory.parent))}
        lists = [self.root / name for name in there if name.endswith(f"/{ELSEWHERE}")]
        others = [path.parent for path in lists if path.parent != directory]
        needed = {entry.name for other in others for entry in self.elsewhere(other).values()}
        needed_folders = {name.rpartition("/")[0] for name in needed}
        if folder in needed_folders:
            self.write(directory / REMOVED, {})
        gone = {folder, *(name.removesuffix(f"/{REMOVED}") for name in there if name.endswith(f"/{REMOVED}"))}
        going = {name for name in there if name.startswith(tuple(f"{each}/" for each in gone))} - needed
        for name in sorted(going - {f"{each}/{REMOVED}" for each in needed_folders}, key=_declares_least):
            self._storage.delete(name)

    @property
    def _storage(self) -> "LocalStorage | S3Storage":
        assert self.address is not None, "asked only if there is a storage"
        return open_storage(self.address)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _list_elsewhere(self, directory: Path, entries: Mapping[str, Entry]) -> None:
        files = {name: (entry.name, entry.bytes) for name, entry in sorted(entries.items())}
        write_json_atomic(directory / ELSEWHERE, files)
        self.push(directory / ELSEWHERE)

    def _find(self, path: Path) -> Entry | None:
        """Return what the storage has of a file, in its folder or elsewhere; a shard that is here is not asked for."""
        named = named_elsewhere(path.parent).get(path.name)
        return named if named is not None and _size(path) == named.bytes else self._ask(path)

    def _ask(self, path: Path) -> Entry | None:
        found = self._storage.find(self._name(path))
        if found is None and path.name.startswith(_SHARD):
            named = self.elsewhere(path.parent).get(path.name)
            return None if named is None else self._storage.find(named.name)
        return found

    def _download(self, path: Path, target: Path) -> None:
        try:
            self._storage.download(self._name(path), target)
        except FileNotFoundError as error:
            gone = f"there is no {self._name(path)} in {self.address} any more: does another process delete it?"
            raise StorageError(gone) from error

    def make_room(self, must_fit: bool = False) -> None:
        """Remove copies of shards that the storage has and no process pins until those that are left fit the limit.

        Those that are being copied count; StorageError if there is still no room, but only if it `must_fit`.
        """
        if self.address is None or self.limit is None:
            return
        # One at a time: shards that another one is removing would be counted, and their folders passed over.
        with locked(lock_file(self.root, self.root, _MAKING_ROOM), fcntl.LOCK_EX):
            # Before the shards: one that arrives in between must not be missed in both.
            copied = self._being_copied()
            shards = sorted(_shards(self.root), key=lambda shard: shard[1].st_atime_ns)
            excess = sum((copied | {path: _room(status) for path, status in shards}).values()) - self.limit
            for path, status in shards:
                if excess <= 0:
                    return
                if self._remove(path, status.st_size):
                    excess -= _room(status)
        if must_fit and excess > 0:
            raise StorageError(
                f"{excess + self.limit:,} bytes of shards are needed at once in {self.root}, the limit is "
                f"{self.limit:,}: raise storage.cache_gb, or use a machine with a larger disk"
            )

    @contextlib.contextmanager
    def _reserved(self, path: Path, size: int) -> Iterator[None]:
        """Reserve room for a file that is being copied by a locked sparse file of its size; others wait for it."""
        reservation = lock_file(self.root, path.parent, path.name).with_suffix(_RESERVED)
        with locked(reservation, fcntl.LOCK_EX):
            os.truncate(reservation, size)
            try:
                yield
            finally:
                reservation.unlink(missing_ok=True)

    def _being_copied(self) -> dict[Path, int]:
        """Return the shards that are being copied with their bytes; remove reservations of killed processes."""
        found, locks = {}, self.root / _LOCKS
        for reservation in locks.glob(f"**/shard-*.tar{_RESERVED}"):
            with contextlib.suppress(FileNotFoundError):
                try:
                    with locked(reservation, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR):
                        reservation.unlink()
                except BlockingIOError:
                    arriving = self.root / reservation.relative_to(locks).with_suffix("")
                    found[arriving] = reservation.stat().st_size
        return found

    def _remove(self, path: Path, size: int) -> bool:
        """Remove a copy that no process pins and the storage has; return whether that was done."""
        alone = fcntl.LOCK_EX | fcntl.LOCK_NB
        with (
            contextlib.suppress(BlockingIOError, FileNotFoundError),
            locked(lock_file(self.root, path.parent, _IN_USE), alone),
            locked(path, alone, os.O_RDWR),
        ):
            entry = self._ask(path)
            if entry is not None and entry.bytes == size:
                path.unlink(missing_ok=True)
                return True
        return False


# A work folder without a storage.
NO_MIRROR = Mirror()


def _declares_least(name: str) -> tuple[bool, bool, str]:
    """Sort manifests, then lists and sidecars, before what they declare complete."""
    return not name.endswith(f"/{_MANIFEST}"), not name.endswith(".json"), name


def _shards(root: Path) -> Iterable[tuple[Path, os.stat_result]]:
    for path in root.glob(_SHARDS):
        with contextlib.suppress(FileNotFoundError):  # another process makes room as well
            yield path, path.stat()


def _room(status: os.stat_result) -> int:
    """Return a file's bytes by name: versions of a split share unchanged shards as hard links."""
    return status.st_size // max(1, status.st_nlink)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed_digests(manifest: bytes) -> dict[str, str]:
    """Return the digests in a manifest by name; none if it cannot be read, which its readers tell."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return dict(parse_json(manifest)["digests"])
    return {}
