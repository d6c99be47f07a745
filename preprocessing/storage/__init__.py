"""A folder on a disk or on S3 behind one protocol, and a work folder that is mirrored on it."""

from preprocessing.storage.address import common_folder, is_s3, join, relative, split_s3
from preprocessing.storage.base import Entry, LocalStorage, Storage
from preprocessing.storage.errors import StorageError
from preprocessing.storage.mirror import Mirror
from preprocessing.storage.opening import open_address, open_lock, open_storage, read

__all__ = [
    "Entry",
    "LocalStorage",
    "Mirror",
    "Storage",
    "StorageError",
    "common_folder",
    "is_s3",
    "join",
    "open_address",
    "open_lock",
    "open_storage",
    "read",
    "relative",
    "split_s3",
]
