"""Members of tars that stay on a storage: their bytes alone are fetched, some of them in advance."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from preprocessing.shards.index import FIX, ShardError

ReadRange = Callable[[Path, int, int], bytes]
"""Returns a part of a tar, by the first byte and the number of bytes."""

# Requests at once: a thread mostly waits for the storage's answer.
_THREADS = 16


class Place(NamedTuple):
    """The bytes of a member in a tar."""

    path: Path
    offset: int
    size: int


class RemoteMembers:
    """The bytes of members; thread-safe. What was fetched in advance is forgotten once it has been asked for."""

    def __init__(self, read_range: ReadRange) -> None:
        self._read_range = read_range
        self._fetched: dict[Place, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="members")

    def fetch(self, places: Iterable[Place]) -> None:
        """Fetch members in other threads, in this order. An error shows again where the member is needed."""
        with self._lock:
            for place in places:
                if place not in self._fetched:
                    self._fetched[place] = self._threads.submit(self._read, place)

    def __getitem__(self, place: Place) -> bytes:
        with self._lock:
            fetched = self._fetched.pop(place, None)
        return self._read(place) if fetched is None else fetched.result()

    def _read(self, place: Place) -> bytes:
        data = self._read_range(*place)
        if len(data) != place.size:
            raise ShardError(
                f"shard {place.path} ends {place.size - len(data)} bytes before a member's end on the storage; {FIX}"
            )
        return data
