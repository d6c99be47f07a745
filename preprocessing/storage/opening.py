"""Storages, locks and files by their addresses."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from preprocessing.storage.address import is_s3, split_s3
from preprocessing.storage.base import LocalStorage
from preprocessing.storage.lease import FolderLock, Lease

if TYPE_CHECKING:
    from preprocessing.storage.s3 import S3Storage

# A request costs about as much time as a megabyte.
_BLOCK_BYTES = 1 << 20


def open_storage(address: str) -> LocalStorage | S3Storage:
    """Return the storage at an address, ``s3://bucket/folder`` or a local folder; makes no request yet."""
    return _s3(address) if is_s3(address) else LocalStorage(Path(address))


def open_lock(address: str, name: str, seconds: float) -> FolderLock | Lease:
    """Return the lock of a name in a storage, which expires after this many seconds without a renewal."""
    return Lease(_s3(address), name, seconds) if is_s3(address) else FolderLock(Path(address) / name, seconds)


def open_address(address: str) -> BinaryIO:
    """Open a local file, or an object on S3, which is then read in blocks on demand."""
    if not is_s3(address):
        return Path(address).open("rb")
    bucket, key = split_s3(address)
    storage = _s3(f"s3://{bucket}")
    entry = storage.find(key)
    if entry is None:
        raise FileNotFoundError(f"there is no object {address}")
    return cast("BinaryIO", io.BufferedReader(_Ranges(storage, key, entry.bytes), _BLOCK_BYTES))


def _s3(address: str) -> S3Storage:
    from preprocessing.storage.s3 import S3Storage  # boto3 takes a while, and most runs do without

    return S3Storage(address)


class _Ranges(io.RawIOBase):
    """An object as a file; every read is one request."""

    def __init__(self, storage: S3Storage, name: str, size: int) -> None:
        self._storage, self._name, self._size = storage, name, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._position + len(buffer), self._size)
        wanted = f"bytes={self._position}-{end - 1}"
        data = self._storage.read(self._name, Range=wanted) if self._position < end else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
