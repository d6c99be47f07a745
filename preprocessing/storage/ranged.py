"""Files opened for reading in any order, on a disk or on S3."""

import io
from pathlib import Path
from typing import BinaryIO, cast

from preprocessing.storage.address import is_s3, split_s3
from preprocessing.storage.base import Storage
from preprocessing.storage.opening import open_storage

# A request costs about as much time as a megabyte.
_BLOCK_BYTES = 1 << 20


def open_address(address: str) -> BinaryIO:
    """Open a local file, or an object on S3, which is then read in blocks on demand."""
    if not is_s3(address):
        return Path(address).open("rb")
    bucket, key = split_s3(address)
    storage = open_storage(f"s3://{bucket}")
    entry = storage.find(key)
    if entry is None:
        raise FileNotFoundError(f"there is no object {address}")
    return cast("BinaryIO", io.BufferedReader(_Ranges(storage, key, entry.bytes), _BLOCK_BYTES))


class _Ranges(io.RawIOBase):
    """An object as a file; every read is one request."""

    def __init__(self, storage: Storage, name: str, size: int) -> None:
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
        length = min(len(buffer), max(self._size - self._position, 0))
        data = self._storage.read_range(self._name, self._position, length) if length else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
