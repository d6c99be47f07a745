"""Hashes of what local files contain, each computed once: a file is known again in another folder."""

import contextlib
import hashlib
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import xxhash

log = logging.getLogger(__name__)

_TABLE = "CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, bytes INT, time INT, hash TEXT) WITHOUT ROWID"
_IN_MEMORY = "file::memory:"
_THREADS = 8
_SECONDS_TO_WAIT = 60.0


class _File(NamedTuple):
    """A file as a listing has it: its path, its bytes, and its time of change in nanoseconds."""

    path: bytes
    bytes: int
    time: int


class FileHashes:
    """Hashes of files, kept in a database under path, size and time of change.

    A file whose content changes, but neither its size nor its time, keeps its hash. If the database cannot be used,
    a warning says so, and every file is read.

    Args:
        database: an SQLite file, made if it is not there; None keeps hashes in memory.
        is_read_only: nothing is written, as in a dry run.
        hashed: called with the number of files that have just been read.
    """

    def __init__(
        self,
        database: Path | None = None,
        is_read_only: bool = False,
        hashed: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._database, self._is_read_only, self._hashed = database, is_read_only, hashed
        self._connection = _connected(_IN_MEMORY)
        if database is not None and (database.exists() or not is_read_only):
            with self._or_without_database():
                database.parent.mkdir(parents=True, exist_ok=True)
                self._connection = _connected(f"{database.absolute().as_uri()}?mode={'ro' if is_read_only else 'rwc'}")

    def stamps(self, paths: Sequence[Path]) -> list[tuple[int, str] | None]:
        """Return size in bytes and hash of each file; None of those that are missing or cannot be read."""
        with ThreadPoolExecutor(_THREADS) as pool:
            files = list(pool.map(_listed, paths))
            known = self._known([file for file in files if file is not None])
            new = list(dict.fromkeys(file for file in files if file is not None and file not in known))
            found = {file: found for file, found in zip(new, pool.map(_hash, new), strict=True) if found is not None}
        self._keep(found)
        known |= found
        return [None if file is None or file not in known else (file.bytes, known[file]) for file in files]

    def _known(self, files: list[_File]) -> dict[_File, str]:
        marks = ",".join("?" * len(files))
        query = f"SELECT path, bytes, time, hash FROM files WHERE path IN ({marks})"
        rows: list[tuple[bytes, int, int, str]] = []
        with self._or_without_database():
            rows = self._connection.execute(query, [file.path for file in files]).fetchall()
        return {_File(path, size, time): found for path, size, time, found in rows}

    def _keep(self, found: dict[_File, str]) -> None:
        if not found:
            return
        self._hashed(len(found))
        if not self._is_read_only:
            with self._or_without_database(), self._connection:
                rows = [(*file, of_content) for file, of_content in found.items()]
                self._connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _or_without_database(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            log.warning("%s is not used, and files are read again (%s): remove it", self._database, error)
            self._connection = _connected(_IN_MEMORY)


def _connected(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, timeout=_SECONDS_TO_WAIT, uri=True)
    connection.execute(_TABLE)
    return connection


def _listed(path: Path) -> _File | None:
    try:
        status = path.stat()
    except (OSError, ValueError):  # missing, or a name that no file has: skipped with the reason where it is read
        return None
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        return None
    return _File(os.fsencode(path.absolute()), status.st_size, status.st_mtime_ns)


def _hash(listed: _File) -> str | None:
    try:
        with Path(os.fsdecode(listed.path)).open("rb") as file:
            return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
    except OSError:
        return None
