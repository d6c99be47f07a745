"""Locks with a named holder: of a folder on one or several machines, and of a name on S3; those of the dead expire."""

import contextlib
import fcntl
import json
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from preprocessing.storage.errors import BusyError, StorageError, UnconditionalError
from preprocessing.storage.s3 import S3Storage

log = logging.getLogger(__name__)

# A holder renews its lock this many times before it would expire. That of a process known to be dead is free at once.
_RENEWALS = 6
# On a server without conditional writes: how long after its write a process looks whether another one has written.
_SETTLE_SECONDS = 3.0


@contextlib.contextmanager
def held(lock: "FolderLock | Lease", lost: Callable[[], None]) -> Iterator[None]:
    """Hold a lock for the block, renewed by a thread; raise BusyError where another process has it.

    A process that was stopped for longer than the lock lasts may find at its next renewal that another one has it:
    then `lost` is called, in that thread.
    """
    lock.take()
    ended = threading.Event()

    def renew() -> None:
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
    """A lock on a disk, a file: of this machine's processes, and of machines that share the file's folder.

    Between processes of a machine, in containers or not, the kernel decides. Its locks may not reach other machines, so
    the file also names its holder. Two machines that the kernel lets begin in one moment find out at the first renewal,
    and one ends.

    Args:
        file: of the lock, made if it is missing.
        seconds: without a renewal after which the lock of another machine's process has expired.
    """

    def __init__(self, file: Path, seconds: float) -> None:
        self._file, self.seconds = file, seconds
        self._holder = _holder()
        self._descriptor = -1

    @property
    def address(self) -> str:
        """Return the path of the lock's file."""
        return str(self._file)

    def take(self) -> None:
        """Acquire the lock, or raise BusyError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = self._read()
            is_local = found.get("kernel") == self._holder["kernel"]  # then this kernel has just said that it is dead
            if found and not is_local and self._age() < self.seconds and not _is_dead(found):
                raise _busy(found)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(self._holder).encode(), 0)
        except BaseException as error:
            found = self._read()
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError):
                raise _busy(found) from None
            raise

    def renew(self) -> bool:
        """Renew the lock; return False where another machine's process has written its name into it."""
        if self._read() != self._holder:
            return False
        os.utime(self._file)
        return True

    def release(self) -> None:
        """Release the lock where it is still ours; its file stays, for another process may just have opened it."""
        try:
            if self._read() == self._holder:
                os.ftruncate(self._descriptor, 0)
        finally:
            os.close(self._descriptor)

    def _read(self) -> dict[str, Any]:
        return _content(self._file.read_bytes())

    def _age(self) -> float:
        # By the clock of the machine that keeps the folder.
        with tempfile.TemporaryFile(dir=self._file.parent) as probe:
            return os.fstat(probe.fileno()).st_mtime - self._file.stat().st_mtime


class Lease:
    """A lock on S3: an object that names its holder.

    Between two processes a conditional write decides. Servers without these are written to and read again after a
    while; that leaves a gap for a process that is stopped between reading and writing, which then finds out at its
    next renewal. Ages are taken from the server's clock alone.
    """

    def __init__(self, storage: S3Storage, name: str, seconds: float) -> None:
        self._storage, self._name, self.seconds = storage, name, seconds
        self._content = _holder()
        self._renewals = 0
        self._version: str | None = None
        self._is_conditional = True

    @property
    def address(self) -> str:
        """Return the address of the object."""
        return f"{self._storage.address}/{self._name}"

    def take(self) -> None:
        """Acquire the lease; raises BusyError where another process holds it, or has been faster."""
        found = self._storage.age(self._name)
        if found is not None and found[1] < self.seconds and not _is_dead(holder := self._read()):
            raise _busy(holder)
        if not self._write(None if found is None else found[0]):
            raise _busy(self._read())
        if not self._is_conditional:
            time.sleep(_SETTLE_SECONDS)
            if not self._is_ours():
                raise _busy(self._read())

    def renew(self) -> bool:
        """Renew the lease; return False where another process has it."""
        if not self._is_conditional and not self._is_ours():
            return False
        return self._write(self._version)

    def release(self) -> None:
        """Release the lease where it is still ours."""
        if self._is_ours():
            self._storage.delete(self._name)

    def _write(self, version: str | None) -> bool:
        self._renewals += 1  # other contents each time, for equal ones would be of the same version
        data = json.dumps({**self._content, "renewals": self._renewals}).encode()
        if self._is_conditional:
            try:
                written = self._storage.write_if(self._name, data, version)
            except UnconditionalError:
                self._is_conditional = False
            else:
                self._version = written or version
                return written is not None
        self._storage.write(self._name, data)
        return True

    def _read(self) -> dict[str, Any]:
        try:
            return _content(self._storage.read(self._name))
        except FileNotFoundError:
            return {}

    def _is_ours(self) -> bool:
        return bool(self._read().get("token") == self._content["token"])


def _holder() -> dict[str, Any]:
    """Return what a lock says of this process; the token tells two locks of one process apart."""
    place = {"host": socket.gethostname(), "kernel": _kernel(), "processes": _processes(), "pid": os.getpid()}
    return {**place, "began": _began(os.getpid()), "since": time.time(), "token": secrets.token_hex(16)}


def _is_dead(found: dict[str, Any]) -> bool:
    """Return whether a holder was a process of this machine that has ended; False where that cannot be known."""
    if (found.get("host"), found.get("processes")) != (socket.gethostname(), _processes()):
        return False
    return _began(found.get("pid")) != found.get("began")


def _kernel() -> str:
    """Return the name of this machine's kernel since its start; a unique one where the system has no names."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


def _processes() -> str:
    """Return the name of this container's or machine's table of processes, "" where the system has no names."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def _began(pid: object) -> str | None:
    """Return when a process was started, in the kernel's ticks; None where there is none alive."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _content(data: bytes) -> dict[str, Any]:
    """Return the holder that a lock names; empty where it is just being written, or names none."""
    with contextlib.suppress(ValueError):
        found = json.loads(data)
        if isinstance(found, dict) and isinstance(found.get("since"), int | float):
            return found
    return {}


def _busy(found: dict[str, Any]) -> BusyError:
    if not found:
        return BusyError("another process, which has just begun")
    began = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(found["since"]))
    minutes = max(0.0, time.time() - found["since"]) / 60
    return BusyError(f"process {found.get('pid')} on {found.get('host')}, since {began} ({minutes:.0f} minutes)")
