"""Locks for work that only one process at a time may do, on this machine or on all that share a storage."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from preprocessing.storage import Mirror, S3Storage, is_s3
from preprocessing.storage.atomic import locked
from preprocessing.storage.lease import BusyError, leased

_LOCK, _LEASE = "lock", "lease.json"


@contextlib.contextmanager
def exclusive(folder: Path, mirror: Mirror) -> Iterator[None]:
    """Lock a folder for the block.

    On this machine the lock is the kernel's, which ends with the process in any case. On S3 it is a lease, which
    expires two minutes after its holder has died; a process that has lost it, having been stopped for as long, gets
    SIGTERM.

    Args:
        folder: in the work folder; created where it is missing.
        mirror: the work folder and its storage.

    Raises:
        BusyError: another process has the lock; the message names it.
        StorageError: the storage does not answer.
    """
    holder = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S %Z')}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone(folder / _LOCK, holder))
        if mirror.address is not None and is_s3(mirror.address):
            name = (folder / _LEASE).relative_to(mirror.root).as_posix()
            stack.enter_context(leased(S3Storage(mirror.address), name, holder, _end))
        elif mirror.address is not None:
            stack.enter_context(_alone(Path(mirror.address) / folder.relative_to(mirror.root) / _LOCK, holder))
        yield


@contextlib.contextmanager
def _alone(lock: Path, holder: str) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            raise BusyError(lock.read_text(encoding="utf-8") or "which has just started") from None
        lock.write_text(holder, encoding="utf-8")
        yield


def _end() -> None:
    """End this process as a user would: runs are ended, and the next start resumes."""
    os.kill(os.getpid(), signal.SIGTERM)
