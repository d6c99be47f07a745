"""Damaged files: digests recorded in `digests.json` next to them, records that carry their own, and the errors."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def memory_ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory is short, in the words of the kernel or of PyTorch."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)


class DamageError(ValueError):
    """A file cannot be what was saved; the message names it."""


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn an error of reading a file into a DamageError that names it.

    Not if the file is not there, memory ran out, or a package is missing that reads it.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # JSON, safetensors and torch each have their own
        if memory_ran_out(error) or isinstance(error.__cause__, ImportError):
            raise
        raise DamageError(f"{path} is damaged ({first_line(error)}): restore it from a copy") from error


DIGESTS = "digests.json"
# Earlier versions kept the lease of a folder inside it, and listed it as if it were an output.
_EARLIER_LEASE = "lease.json"

_RESTORE = "restore it from a copy, or remove the output of the stage that wrote it and run that again"
_REMAKE = "make it again: the command full, with its configuration, registers a model, and index makes a gallery"
_SEAL = "sha256"

FORMAT = 2
"""The format of what is written: 1 had records without their own digest, 0 no digests at all."""


class DigestError(ValueError):
    """A file is not the one that was written, or another version wrote it; the reason, which names it, and a remedy."""

    def __init__(self, reason: str, remedy: str = _RESTORE) -> None:
        super().__init__(reason, remedy)
        self.reason, self.remedy = reason, remedy

    def __str__(self) -> str:
        return f"{self.reason}: {self.remedy}"


def outdated(subject: object, found: int) -> DigestError:
    """Return the error of what an earlier version has written, and this one does not read."""
    reason = f"{subject} has format {found}, of an earlier version (or its {DIGESTS} was removed)"
    return DigestError(f"{reason}; this version reads format {FORMAT}", _REMAKE)


def json_digest(content: Any) -> str:
    """Return the sha256 (64 hex digits) of the canonical JSON of `content`; raises as `json.dumps`, NaN included."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record, as JSON gives it back, with the format and the sha256 of its own content."""
    content: dict[str, Any] = json.loads(json.dumps({**record, "format": FORMAT}))
    return {**content, _SEAL: json_digest(content)}


def unsealed(record: Any, path: Path, remedy: str = _RESTORE) -> dict[str, Any]:
    """Return what `sealed` was given; a record of an earlier format, which has no sha256, as it is.

    DigestError, with the remedy, if it was changed or is not a record, and if a later version has written it.
    """
    if not isinstance(record, dict) or not isinstance(found := record.get("format", 1), int):
        raise DigestError(f"{path} is damaged: not a record with its format", remedy)
    if found > FORMAT:
        reason = f"{path} has format {found}, of a later version; this version reads formats up to {FORMAT}"
        raise DigestError(reason, "update this program, or make it again with this version")
    content = {name: value for name, value in record.items() if name != _SEAL}
    if (_SEAL in record or found == FORMAT) and record.get(_SEAL) != json_digest(content):
        raise DigestError(f"{path} was changed after it was written: its sha256 is not that of its content", remedy)
    return {name: value for name, value in content.items() if name != "format"}


def file_digest(path: Path) -> str:
    """Return the sha256 (64 hex digits) of a file, read once in a process for as long as its size and time stay."""
    status = path.stat()
    return _digest(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: str, *_stamp: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_digests(directory: Path, *names: str) -> None:
    """Record the digests of files, or all files of folders, of a directory, by default of all in it.

    Those of others stay as they are.
    """
    path, digests = directory / DIGESTS, {}
    if names:
        with contextlib.suppress(DigestError):
            digests = read_digests(directory)[1]
    for chosen in map(directory.joinpath, names or ["."]):
        for file in [chosen] if chosen.is_file() else chosen.rglob("*"):
            name = file.relative_to(directory).as_posix()
            if file.is_file() and "/." not in f"/{name}" and name != DIGESTS:
                digests[name] = file_digest(file)
    aside = path.with_name(f".{DIGESTS}.tmp")
    aside.write_text(json.dumps(sealed({"files": digests}), sort_keys=True, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def recorded(directory: Path) -> set[str]:
    """Return the names of the files whose digests are recorded in a directory; raises as :func:`check_digests`."""
    return set(read_digests(directory)[1]) - {_EARLIER_LEASE}


def check_digests(directory: Path, *names: str) -> None:
    """Compare files of a directory, by default all that are recorded, with its `digests.json`.

    DigestError if a file was changed, is missing or is not recorded, or there are no digests.
    """
    path = directory / DIGESTS
    _, digests = read_digests(directory)
    unknown = [name for name in names if name not in digests]
    if unknown:
        raise DigestError(f"{path} has no digest of {unknown[0]}")
    compare_digests(directory, {name: digests[name] for name in names or digests}, path)


def check_bundle(directory: Path, name: str) -> None:
    """Compare a directory of parts, each of which has its own list as well, with its one list of all their files.

    DigestError if a file was changed or is missing, or the directory is of an earlier format, without that list.
    """
    has_list = (directory / DIGESTS).is_file()
    found = read_digests(directory)[0] if has_list else int(any(directory.glob(f"*/{DIGESTS}")))
    if found < FORMAT:
        raise outdated(name, found)
    check_digests(directory)


def compare_digests(directory: Path, digests: Mapping[str, str], source: Path) -> None:
    """Compare files of a directory with their digests, by name; raises as :func:`check_digests`."""
    for name, expected in digests.items():
        if name == _EARLIER_LEASE:
            continue
        path = directory / name
        if not path.is_file():
            raise DigestError(f"{path} is missing, and {source} lists it")
        digest = file_digest(path)
        if digest != expected:
            raise DigestError(f"{path} is damaged: its sha256 is {digest[:12]}..., and {expected[:12]}... in {source}")


def read_digests(directory: Path) -> tuple[int, dict[str, str]]:
    """Return the format of a directory's `digests.json` and the digests by name.

    DigestError if there are none, as in format 0, or they are damaged.
    """
    path = directory / DIGESTS
    try:
        record = json.loads(path.read_bytes())
        content = unsealed(record, path)
    except FileNotFoundError:
        raise outdated(directory, 0) from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DigestError):
            raise
        raise DigestError(f"{path} is damaged ({error})") from error
    found = record.get("format", 1)
    digests = content if found < FORMAT else content.get("files")
    if not isinstance(digests, dict) or not digests or not all(isinstance(value, str) for value in digests.values()):
        raise DigestError(f"{path} is damaged: not a list of one digest or more")
    return found, digests
