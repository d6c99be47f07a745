"""A storage on a disk: files under names in a folder; what all storages have in common, on S3 too, and their errors."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from preprocessing.storage.atomic import open_atomic
from preprocessing.storage.redaction import RedactedError


class StorageError(RedactedError):
    """A storage does not do what it is asked for; the message says what, where, and how to fix it."""


class ObjectError(StorageError):
    """One object cannot be read, which says nothing of others: it is damaged, or archived."""


class UnconditionalError(StorageError):
    """The server has no conditional writes."""


class BusyError(Exception):
    """Another process holds a lock; the message says which one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name in the storage's folder, its size, and the ETag (S3) or time of change in nanoseconds (disk)."""

    name: str
    bytes: int
    version: str


class LocalStorage:
    """A local folder, made when something is written; `preprocessing.storage.s3.S3Storage` has the same methods.

    Names are relative to the folder; a file appears under its name when it is complete and verified, and what was there
    before stays until then. Errors are FileNotFoundError and, on S3, StorageError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = str(folder)

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Yield the files of a folder at any depth, by name, but those being written, which begin with a dot.

        OSError if a folder in it cannot be read, but for one that is gone, hidden, or a file system's own.
        """
        walked = os.walk(self._folder / folder, onerror=_refuse)
        found = (Path(parent) / name for parent, _, names in walked for name in names if name[0] != ".")
        paths = (path for path in found if path.is_file())
        for path in sorted(paths, key=lambda path: path.relative_to(self._folder).as_posix()):
            yield self._entry(path)

    def find(self, name: str) -> Entry | None:
        """Return a file's size and time of change, None if there is no such file."""
        path = self._folder / name
        return self._entry(path) if path.is_file() else None

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        return (self._folder / name).read_bytes()

    def download(self, name: str, path: Path) -> None:
        """Copy a file to a local path."""
        _copy(self._folder / name, path)

    def upload(self, path: Path, name: str) -> None:
        """Copy a local file to the storage."""
        _copy(path, self._folder / name)

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        (self._folder / name).unlink(missing_ok=True)

    def _entry(self, path: Path) -> Entry:
        status = os.stat(path)  # noqa: PTH116
        return Entry(path.relative_to(self._folder).as_posix(), status.st_size, str(status.st_mtime_ns))


def _refuse(error: OSError) -> None:
    """Raise if a folder cannot be read, whose files would seem to be gone."""
    name = Path(error.filename).name
    is_others = isinstance(error, PermissionError) and (name == "lost+found" or name.startswith("."))
    if not is_others and not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as original:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(target) as copy:
            shutil.copyfileobj(original, copy)
