"""Locks with a named holder: of a folder on one or several machines, and of a name on S3; those of the dead expire."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from preprocessing.storage.atomic import write_bytes_atomic
from preprocessing.storage.base import BusyError, StorageError, UnconditionalError

if TYPE_CHECKING:
    from preprocessing.storage.s3 import S3Storage

log = logging.getLogger(__name__)

# A holder renews its lock this many times before it would expire.
_RENEWALS = 6
# On a server without conditional writes: how long after its write a process looks whether another one has written.
_SETTLE_SECONDS = 3.0


class Holder(BaseModel):
    """A process, as the contents of a lock: its machine, kernel and table of processes, its number and start there.

    `kernel` is the machine's since it was started, `since` the time in seconds when the lock was taken, and the token
    tells two locks of one process apart. Without one, the lock names nobody, or is just being written.
    """

    model_config = ConfigDict(frozen=True)

    host: str = ""
    kernel: str = ""
    processes: str = ""
    pid: int = 0
    began: str | None = None
    since: float = 0.0
    token: str = ""

    @classmethod
    def of_this_process(cls) -> Self:
        """Return this process; the token stands for the kernel if the system has no name for it."""
        pid, token = os.getpid(), secrets.token_hex(16)
        here = {"host": socket.gethostname(), "kernel": _kernel() or token, "processes": _processes()}
        return cls(**here, pid=pid, began=_began(pid), since=time.time(), token=token)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the holder that a lock's contents name."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return cls()

    def may_live(self) -> bool:
        """Return whether it may still hold the lock: not if it was a process of this machine that has ended.

        Machines may have one host name; what only names the kernel since its start tells them apart.
        """
        is_here = (self.host, self.kernel, self.processes) == (socket.gethostname(), _kernel(), _processes())
        return bool(self.token) and not (is_here and _began(self.pid) != self.began)

    def __str__(self) -> str:
        """Return the process in words, for a message."""
        if not self.token:
            return "another process, which has just begun"
        began = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(self.since))
        minutes = max(0.0, time.time() - self.since) / 60
        return f"process {self.pid} on {self.host}, since {began} ({minutes:.0f} minutes)"


def _kernel() -> str:
    """Return the name of this machine's kernel since its start, "" if the system has none for it."""
    return _line("/proc/sys/kernel/random/boot_id")


def _processes() -> str:
    """Return the name of this container's or machine's table of processes, "" if the system has no names for them."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; None if there is none alive."""
    fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return None if not fields or fields[0] in "ZX" else fields[19]


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


@contextlib.contextmanager
def held(lock: FolderLock | Lease, lost: Callable[[], None]) -> Iterator[None]:
    """Hold a lock for the block, renewed by a thread; raise BusyError if another process has it.

    A process that was stopped for longer than the lock lasts may find at its next renewal that another one has it:
    then `lost` is called, in that thread.
    """
    lock.take()
    ended = threading.Event()

    def renew() -> None:
        """Renew the lock again and again until the block ends or the lock is lost."""
        while not ended.wait(lock.seconds / _RENEWALS):
            try:
                is_ours = lock.renew()
            except (StorageError, OSError) as error:
                log.warning("the lock %s cannot be renewed now: %s", lock.address, error)
                continue
            if not is_ours:
                log.error("the lock %s has been lost to another process: this one ends", lock.address)
                lost()
                return

    thread = threading.Thread(target=renew, name="lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(StorageError, OSError):  # it expires by itself
            lock.release()


class FolderLock:
    """A lock on a disk: of this machine's processes, and of machines that share the folder of its file.

    Between processes of a machine, in containers or not, the kernel decides. Its locks may not reach other machines:
    so a file next to the lock's names the holder. Two machines that the kernel lets begin in one moment find out at the
    first renewal, and one ends. After `seconds` without a renewal the lock of another machine's process has expired.
    """

    def __init__(self, file: Path, seconds: float) -> None:
        self.address, self.seconds = str(file), seconds
        self._lock, self._record = FileLock(file, timeout=0), file.with_suffix(".json")
        self._own = Holder.of_this_process()

    def take(self) -> None:
        """Acquire the lock, or raise BusyError."""
        self._record.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise BusyError(str(self._read())) from None
        try:
            found = self._read()
            # The kernel has just said that the processes of this machine are dead.
            if found.may_live() and found.kernel != self._own.kernel and self._age() < self.seconds:
                raise BusyError(str(found))
            write_bytes_atomic(self._record, self._own.model_dump_json().encode())
        except BaseException:
            self._lock.release()
            raise

    def renew(self) -> bool:
        """Renew the lock; return False if another machine's process has written its name into it."""
        if self._read() != self._own:
            return False
        os.utime(self._record)
        return True

    def release(self) -> None:
        """Release the lock if it is still ours."""
        if self._read() == self._own:
            self._record.unlink()
        self._lock.release()

    def _read(self) -> Holder:
        try:
            return Holder.parse(self._record.read_bytes())
        except FileNotFoundError:
            return Holder()

    def _age(self) -> float:
        # By the clock of the machine that keeps the folder.
        with tempfile.TemporaryFile(dir=self._record.parent) as probe:
            try:
                return os.fstat(probe.fileno()).st_mtime - self._record.stat().st_mtime
            except FileNotFoundError:  # its holder has just released it
                return math.inf


class Lease:
    """A lock on S3: an object that names its holder.

    Between two processes a conditional write decides. Servers without these are written to and read again after a
    while; that leaves a gap for a process that is stopped between reading and writing, which then finds out at its
    next renewal. Ages are taken from the server's clock alone.
    """

    def __init__(self, storage: S3Storage, name: str, seconds: float) -> None:
        self.address, self.seconds = f"{storage.address}/{name}", seconds
        self._storage, self._name, self._own = storage, name, Holder.of_this_process()
        self._renewals = 0
        self._version: str | None = None
        self._is_conditional = True

    def take(self) -> None:
        """Acquire the lease; raise BusyError if another process holds it, or has been faster."""
        found = self._storage.age(self._name)
        if found is not None and found[1] < self.seconds and (holder := self._read()).may_live():
            raise BusyError(str(holder))
        is_ours = self._write(None if found is None else found[0])
        if not self._is_conditional:
            time.sleep(_SETTLE_SECONDS)
            is_ours = self._is_ours()
        if not is_ours:
            raise BusyError(str(self._read()))

    def renew(self) -> bool:
        """Renew the lease; return False if another process has it.

        It is read first: some servers take no notice of a write's condition.
        """
        return self._is_ours() and self._write(self._version)

    def release(self) -> None:
        """Release the lease if it is still ours."""
        if self._is_ours():
            self._storage.delete(self._name)

    def _write(self, version: str | None) -> bool:
        """Write our name if the object has this version; return False if it has another."""
        self._renewals += 1  # other contents each time, for equal ones would be of the same version
        data = json.dumps({**self._own.model_dump(), "renewals": self._renewals}).encode()
        if self._is_conditional:
            try:
                written = self._storage.write_if(self._name, data, version)
            except UnconditionalError:
                self._is_conditional = False
            else:
                self._version = written or version
                return written is not None or self._is_written_already()
        self._storage.write(self._name, data)
        return True

    def _is_written_already(self) -> bool:
        """Return whether the object is ours after a refused write, as it is if the answer to that write was lost."""
        found = self._storage.age(self._name)
        if found is None or not self._is_ours():
            return False
        self._version = found[0]
        return True

    def _read(self) -> Holder:
        try:
            return Holder.parse(self._storage.read(self._name))
        except FileNotFoundError:
            return Holder()

    def _is_ours(self) -> bool:
        return self._read() == self._own
