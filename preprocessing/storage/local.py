"""A local folder as a storage."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from preprocessing.storage.atomic import link_atomic, open_atomic
from preprocessing.storage.base import Entry


class LocalStorage:
    """A local folder, made when something is written; see :class:`~preprocessing.storage.base.Storage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        """Return the folder's path."""
        return str(self._folder)

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Yield files at any depth by name; those whose name begins with a dot are being written."""
        paths = (path for path in (self._folder / folder).rglob("*") if path.is_file() and path.name[0] != ".")
        for path in sorted(paths, key=lambda path: path.relative_to(self._folder).as_posix()):
            yield self._entry(path)

    def find(self, name: str) -> Entry | None:
        """Return a file's size and time of change, None where there is no such file."""
        path = self._folder / name
        return self._entry(path) if path.is_file() else None

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        return (self._folder / name).read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def download(self, name: str, path: Path) -> None:
        """Copy a file out."""
        _copy(self._folder / name, path)

    def upload(self, path: Path, name: str) -> None:
        """Copy a file in."""
        _copy(path, self._folder / name)

    def copy(self, name: str, target: str) -> None:
        """Give a file a second name."""
        (self._folder / target).parent.mkdir(parents=True, exist_ok=True)
        link_atomic(self._folder / name, self._folder / target)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self._folder / name).unlink(missing_ok=True)

    def _entry(self, path: Path) -> Entry:
        status = os.stat(path)  # noqa: PTH116
        return Entry(path.relative_to(self._folder).as_posix(), status.st_size, str(status.st_mtime_ns))


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as original:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(target) as copy:
            shutil.copyfileobj(original, copy)
