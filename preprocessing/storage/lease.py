"""A lock on S3 that expires by itself when its holder has been killed."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from preprocessing.storage.errors import StorageError, UnconditionalError
from preprocessing.storage.s3 import S3Storage

log = logging.getLogger(__name__)

# A lease that was not renewed for this long has expired; a live holder renews several times meanwhile.
LEASE_SECONDS = 120.0
_RENEW_SECONDS = 20.0
# On a server without conditional writes: how long after its write a process looks whether another one has written.
_SETTLE_SECONDS = 3.0


class BusyError(Exception):
    """Another process holds the lease; the message says which one."""


@contextlib.contextmanager
def leased(storage: S3Storage, name: str, holder: str, lost: Callable[[], None]) -> Iterator[None]:
    """Hold a lease for as long as the block lasts; raise BusyError where another process, its `holder` said, has it.

    Between two processes a conditional write decides. Servers without these are written to and read again after a
    while; that leaves a gap for a process that is stopped between reading and writing, which then finds out at its
    next renewal, and has `lost` called in another thread. Ages are taken from the server's clock alone.
    """
    lease = _Lease(storage, name, holder)
    lease.take()
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEW_SECONDS):
            try:
                is_ours = lease.renew()
            except StorageError as error:
                log.warning("the lease %s/%s cannot be renewed now: %s", storage.address, name, error)
                continue
            if not is_ours:
                log.error("the lease %s/%s has been lost to another process: this one ends", storage.address, name)
                lost()
                return

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(StorageError):  # it expires by itself
            lease.release()


class _Lease:
    """One process's lease; arguments as of :func:`leased`."""

    def __init__(self, storage: S3Storage, name: str, holder: str) -> None:
        self._storage, self._name = storage, name
        self._content: dict[str, Any] = {"holder": holder, "token": secrets.token_hex(16)}
        self._renewals = 0
        self._version: str | None = None
        self._is_conditional = True

    def take(self) -> None:
        """Acquire the lease; raises BusyError where another process holds it, or has been faster."""
        found = self._storage.age(self._name)
        if found is not None and found[1] < LEASE_SECONDS:
            raise self._busy()
        if not self._write(None if found is None else found[0]):
            raise self._busy()
        if not self._is_conditional:
            time.sleep(_SETTLE_SECONDS)
            if not self._is_ours():
                raise self._busy()

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
        """Write the lease where it has this version; return False where it has not."""
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
            content: dict[str, Any] = json.loads(self._storage.read(self._name))
        except FileNotFoundError:
            return {}
        return content

    def _is_ours(self) -> bool:
        return bool(self._read().get("token") == self._content["token"])

    def _busy(self) -> BusyError:
        return BusyError(str(self._read().get("holder", "which has just begun")))
