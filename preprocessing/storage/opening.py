"""The storage at an address."""

from pathlib import Path

from preprocessing.storage.address import is_s3
from preprocessing.storage.base import LocalStorage, Storage


def open_storage(address: str) -> Storage:
    """Return the storage at an address, ``s3://bucket/folder`` or a local folder; makes no request yet."""
    if not is_s3(address):
        return LocalStorage(Path(address))
    from preprocessing.storage.s3 import S3Storage  # boto3 takes a while, and most runs do without

    return S3Storage(address)
