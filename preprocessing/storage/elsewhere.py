"""The list of a folder's files that lie in another one: shards of an earlier version, which stay where they are."""

from functools import lru_cache
from pathlib import Path

from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import require_inner_name
from preprocessing.storage.base import Entry, StorageError

ELSEWHERE = "elsewhere.json"
_AGAIN = "remove it, on the storage too, and run the same command again, which makes the shards that it named"


def named_elsewhere(directory: Path) -> dict[str, Entry]:
    """Return the files of a directory that lie in another one, by its list on this machine; raises StorageError."""
    path = directory / ELSEWHERE
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else {}


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> dict[str, Entry]:
    return parse_list(path.read_bytes(), str(path))


def parse_list(data: bytes, where: str) -> dict[str, Entry]:
    """Return the files that a list names, with their sizes, by their names in its folder; raises StorageError."""
    with damage_as(StorageError, where, _AGAIN):
        files = parse_json(data)
        if not isinstance(files, dict):
            raise ValueError("no JSON object")
        return {
            name: Entry(require_inner_name(there, where, StorageError), int(size), "")
            for name, (there, size) in files.items()
        }
