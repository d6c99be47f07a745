"""Atomic writes of local files, and locks."""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import Any

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BufferedRandom]:
    """Open a binary file for writing and reading that appears under ``path`` when the block ends without an exception.

    An OSError names the file if the disk is full. The bytes go to a hidden file next to ``path``, which is synced
    and then renamed: a process killed at any moment leaves the old file or the new one. What killed writers of the same
    path left behind is removed first; a lock of the kernel shows which ones are alive. (One on another node, which
    locks may not reach, then fails at its rename instead of mixing its bytes with ours.)
    """
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        is_dead = contextlib.suppress(BlockingIOError, FileNotFoundError)
        with is_dead, locked(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_RDWR):
            leftover.unlink()
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        # Created again if another process has taken it for a leftover before it was locked.
        with locked(aside, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT | os.O_EXCL), aside.open("r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        if error.errno in _NO_ROOM:
            error.filename = error.filename or str(path)  # a write that fails does not say where
        raise
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def link_atomic(path: Path, target: Path) -> None:
    """Give a file that is never written to a second name, or a copy if the file system has no hard links."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        aside.hardlink_to(path)
    except FileNotFoundError:
        raise
    except OSError:
        with path.open("rb") as original, open_atomic(target) as copy:
            shutil.copyfileobj(original, copy)
        return
    aside.replace(target)
    # If both names are links to one file already, rename leaves the first name behind.
    aside.unlink(missing_ok=True)
    sync_directory(target.parent)


def link_tree(folder: Path, target: Path) -> None:
    """Give all files of a folder, none of which is ever written to, a second name as :func:`link_atomic` does."""
    shutil.copytree(folder, target, copy_function=lambda *names: link_atomic(*map(Path, names)), dirs_exist_ok=True)


@contextlib.contextmanager
def locked(path: Path, how: int, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[None]:
    """Lock a file, again if another process has removed it meanwhile; the kernel releases it with this process."""
    with contextlib.ExitStack() as stack:
        is_there = False
        while not is_there:
            stack.close()
            descriptor = os.open(path, flags, 0o666)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, how)
            is_there = os.fstat(descriptor).st_nlink > 0
        yield


def sync_directory(path: Path) -> None:
    """Make renames and deletions in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there."""
    with open_atomic(path) as file:
        file.write(data)


def write_json_atomic(path: Path, value: Any) -> None:
    """Write a JSON file, or leave what was there; keys are sorted, so equal values give equal bytes."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1, allow_nan=False)
    write_bytes_atomic(path, text.encode() + b"\n")
