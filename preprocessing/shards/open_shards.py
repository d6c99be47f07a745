"""A bounded number of memory-mapped tars, fetched on demand and checked when they are first mapped."""

import contextlib
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from preprocessing.shards.index import FIX, ShardError

Pin = Callable[[Path], AbstractContextManager[None]]

_FETCHING_THREADS = 4


@dataclass(frozen=True, slots=True)
class TarFile:
    """A tar, here or still to be fetched, with its size and sha256 from the sidecar."""

    path: Path
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Mapped:
    memory: mmap.mmap
    pinned: contextlib.ExitStack


class OpenShards:
    """Memory maps by the number of the shard; thread-safe.

    The least recently used one makes room for another. It is forgotten, not closed: arrays handed out earlier keep
    their memory alive until they are gone. There are `limit` maps at a time; `pin` keeps a tar on this machine for as
    long as its block lasts.
    """

    def __init__(self, tars: Sequence[TarFile], limit: int, pin: Pin) -> None:
        self._tars = tars
        self._limit = limit
        self._pin = pin
        self._maps: OrderedDict[int, Future[_Mapped]] = OrderedDict()
        self._queued: set[int] = set()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_FETCHING_THREADS, thread_name_prefix="shards")

    def __len__(self) -> int:
        return len(self._maps)

    def __getitem__(self, shard: int) -> mmap.mmap:
        with self._lock:
            found = self._maps.get(shard)
            if found is not None:
                self._maps.move_to_end(shard)
            else:
                mine = self._maps[shard] = Future[_Mapped]()
                if len(self._maps) > self._limit:
                    self._forget_one()
        if found is not None:
            return found.result().memory
        try:
            mine.set_result(self._mapped(shard))
        except BaseException as error:
            with self._lock:
                del self._maps[shard]  # the next that needs it tries again
            mine.set_exception(error)
            raise
        return mine.result().memory

    def _forget_one(self) -> None:
        """Forget the least recently used map; those that other threads are still mapping stay."""
        for shard, mapped in self._maps.items():
            if mapped.done():
                del self._maps[shard]
                mapped.result().pinned.close()
                return

    def fetch(self, shards: Iterable[int]) -> None:
        """Map these in other threads, in this order. An error shows again when the shard is needed."""
        with self._lock:
            wanted = [shard for shard in shards if shard not in self._maps and shard not in self._queued]
            self._queued.update(wanted)
        for shard in wanted:
            self._threads.submit(self._fetched, shard)

    def _fetched(self, shard: int) -> None:
        try:
            self[shard]
        finally:
            with self._lock:
                self._queued.discard(shard)

    def _mapped(self, shard: int) -> _Mapped:
        tar = self._tars[shard]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._pin(tar.path))
            try:
                with tar.path.open("rb") as file:
                    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise ShardError(f"cannot open shard {tar.path}: {error}; {FIX}") from error
            if len(memory) != tar.bytes:
                raise ShardError(f"shard {tar.path} has {len(memory)} bytes now, not {tar.bytes}; {FIX}")
            return _Mapped(memory, stack.pop_all())
