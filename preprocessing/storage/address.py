"""Addresses of files and folders, a local path or ``s3://bucket/key``, and names in them that come from outside."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

SCHEME = "s3://"


def is_s3(address: str) -> bool:
    """Return whether an address is on S3; anything else is a local path."""
    return address.startswith(SCHEME)


def split_s3(address: str) -> tuple[str, str]:
    """Return bucket and key of ``s3://bucket/key``, key "" for a bucket alone; raise ValueError for another address."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not is_s3(address) or not bucket:
        raise ValueError(f"{address!r} is not an address on S3; write s3://BUCKET/FOLDER")
    return bucket, key.strip("/")


def join(folder: str, name: str) -> str:
    """Return the address of a name inside a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_s3(folder) else os.path.join(folder, name)  # noqa: PTH118


def common_folder(folders: Sequence[str]) -> str:
    """Return the deepest folder above all of these; raise ValueError unless all are local or all in one bucket."""
    if not any(is_s3(folder) for folder in folders):
        return os.path.commonpath(folders)
    common = os.path.commonpath([f"/{folder.removeprefix(SCHEME)}" for folder in folders]).strip("/")
    if not common or not all(is_s3(folder) for folder in folders):
        raise ValueError(f"the folders {', '.join(folders)} have no folder in common: put them into one bucket")
    return f"{SCHEME}{common}"


def relative(address: str, folder: str) -> str:
    """Return an address as a name inside a folder, the opposite of :func:`join`; on S3 it must lie in the folder."""
    if not is_s3(folder):
        return os.path.relpath(address, folder)
    start = f"{folder.rstrip('/')}/"
    if not address.startswith(start):
        raise ValueError(f"{address} does not lie in {folder}")
    return address.removeprefix(start)


_DRIVE = re.compile("[A-Za-z]:")


def require_inner_name(name: object, where: str, error: type[Exception]) -> str:
    """Return a name that may be joined to a folder: it leads to something inside, on any operating system.

    Args:
        name: as it was found.
        where: the place that it was found in, for the message.
        error: raised for a name that is empty, absolute or not text, or has a drive, `..`, a backslash or a NUL.
    """
    if not isinstance(name, str) or set(name.split("/")) <= {"", "."}:
        raise error(f"{where}: {name!r:.80} is not the name of a file; it has to be a text that is not empty")
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name or _DRIVE.match(name):
        raise error(
            f"{where}: the name {name!r:.200} is not a path inside its folder (it is absolute, or has .., a drive, a "
            "backslash or a NUL): nothing under it is read or written; rename it there, or remove it"
        )
    return name


def leads_out(path: str, folder: str) -> bool:
    """Return whether a local file lies outside a folder once all links on the way to it are followed."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
