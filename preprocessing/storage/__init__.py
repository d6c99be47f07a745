"""A folder on a disk or on S3 behind one protocol, and a work folder that is mirrored on it."""

from pathlib import Path

from preprocessing.storage.address import common_folder, is_s3, join, relative, split_s3
from preprocessing.storage.base import Entry, LocalStorage, Storage
from preprocessing.storage.errors import StorageError
from preprocessing.storage.mirror import Mirror
from preprocessing.storage.ranged import open_address
from preprocessing.storage.s3 import S3Storage

__all__ = [
    "Entry",
    "LocalStorage",
    "Mirror",
    "S3Storage",
    "Storage",
    "StorageError",
    "common_folder",
    "is_s3",
    "join",
    "open_address",
    "open_storage",
    "read",
    "relative",
    "split_s3",
]


def open_storage(address: str) -> Storage:
    """Return the storage at an address, ``s3://bucket/folder`` or a local folder; makes no request yet."""
    return S3Storage(address) if is_s3(address) else LocalStorage(Path(address))


def read(address: str) -> bytes:
    """Return the contents of an object on S3; raise FileNotFoundError or StorageError."""
    bucket, key = split_s3(address)
    return S3Storage(f"s3://{bucket}").read(key)
