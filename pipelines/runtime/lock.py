"""One process at a time for the work on a folder, on this machine and on all that share the folder or its storage."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from preprocessing.storage.base import BusyError
from preprocessing.storage.lease import FolderLock, Lease, held
from preprocessing.storage.mirror import Mirror, lock_file
from preprocessing.storage.opening import open_lock

_RETRY_SECONDS = 5.0

Result = TypeVar("Result")


@contextlib.contextmanager
def exclusive(mirror: Mirror, *folders: Path) -> Iterator[None]:
    """Lock folders for the block, here and on the storage.

    A killed holder's lock is free at once on its own machine, and after `mirror.lease_seconds` on others. A process
    that has lost a lock, having been stopped for as long, gets SIGTERM. Raises BusyError, which names the folder and
    the process, if another has a lock, and StorageError if the storage does not answer.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            try:
                for lock in _locks(mirror, folder):
                    stack.enter_context(held(lock, _end))
            except BusyError as error:
                raise BusyError(f"{folder} is being worked on by {error}") from None
        yield


def when_free(work: Callable[[], Result]) -> Result:
    """Do work as soon as no other process is at it, and return its result; who is waited for is said on stderr once."""
    waits = False
    while True:
        try:
            return work()
        except BusyError as error:
            if not waits:
                sys.stderr.write(f"waiting: {error}\n")
            waits = True
        time.sleep(_RETRY_SECONDS)


def _locks(mirror: Mirror, folder: Path) -> Iterator[FolderLock | Lease]:
    file, seconds = lock_file(mirror.root, folder, "work"), mirror.lease_seconds
    yield FolderLock(file, seconds)
    if mirror.address is not None:
        yield open_lock(mirror.address, file.relative_to(mirror.root).as_posix(), seconds)


def _end() -> None:
    """End this process as a user would: runs are ended, and the next start resumes."""
    os.kill(os.getpid(), signal.SIGTERM)
