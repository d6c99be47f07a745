"""The protocol of a storage: files under names in a folder, whether on a disk or on S3."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name in the storage's folder, its size, and the ETag (S3) or time of change in nanoseconds (disk)."""

    name: str
    bytes: int
    version: str


class Storage(Protocol):
    """A folder. Names are relative to it; a file appears under its name when it is complete."""

    @property
    def address(self) -> str:
        """Return the folder's address."""

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Yield files in the folder or one inside it, at any depth, ordered by name."""

    def find(self, name: str) -> Entry | None:
        """Return a file's size and version, None where there is no such file."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file; raise FileNotFoundError or StorageError."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file, shorter than asked for only at its end; raises as :meth:`read`."""

    def download(self, name: str, path: Path) -> None:
        """Copy a file to a local path, where it appears when it is complete and verified; raises as :meth:`read`."""

    def upload(self, path: Path, name: str) -> None:
        """Copy a local file to the storage: verified on return; after a StorageError what was there before still is."""

    def copy(self, name: str, target: str) -> None:
        """Give a file a second name, on the storage's side; neither name is written to afterwards."""

    def delete(self, name: str) -> None:
        """Remove a file where it is there."""
