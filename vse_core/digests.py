"""Damaged files of a model: digests, recorded in `digests.json` next to them and compared before use, and the error."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


class DamageError(ValueError):
    """A file cannot be what was saved; the message names it."""


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn an error of reading a file into a DamageError that names it, but if it is not there, or memory ran out."""
    try:
        yield
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # JSON, safetensors and torch each have their own
        if "allocate memory" in str(error) or "out of memory" in str(error):  # the kernel's and PyTorch's words
            raise
        raise DamageError(f"{path} is damaged ({first_line(error)}): restore it from a copy") from error


DIGESTS = "digests.json"


class DigestError(ValueError):
    """A file is not the one that was written; the message is the reason, which names it, and what to do."""

    @property
    def reason(self) -> str:
        """The message without what to do."""
        return str(self.args[0])

    def __str__(self) -> str:
        return (
            f"{self.reason}: restore it from a copy, or remove the output of the stage that wrote it and run that again"
        )


def file_digest(path: Path) -> str:
    """Return the sha256 (64 hex digits) of a file, read once in a process for as long as its size and time stay."""
    status = path.stat()
    return _digest(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: str, *_stamp: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_digests(directory: Path, *names: str) -> None:
    """Record the digests of files of a directory, by default of all at any depth; those of others stay as they are."""
    path, digests = directory / DIGESTS, {}
    if names:
        with contextlib.suppress(DigestError):
            digests = _read(path)
    else:
        names = tuple(file.relative_to(directory).as_posix() for file in directory.rglob("*"))
    written = {name for name in names if (directory / name).is_file() and "/." not in f"/{name}"} - {DIGESTS}
    digests |= {name: file_digest(directory / name) for name in written}
    aside = path.with_name(f".{DIGESTS}.tmp")
    aside.write_text(json.dumps(digests, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def check_digests(directory: Path, *names: str) -> None:
    """Compare files of a directory, by default all that are recorded, with its `digests.json`.

    Raises:
        DigestError: a file was changed, is missing or is not recorded, or there are no digests.
    """
    path = directory / DIGESTS
    digests = _read(path)
    unknown = [name for name in names if name not in digests]
    if unknown:
        raise DigestError(f"{path} has no digest of {unknown[0]}")
    compare_digests(directory, {name: digests[name] for name in names or digests}, path)


def compare_digests(directory: Path, digests: Mapping[str, str], source: Path) -> None:
    """Compare files of a directory with their digests, by name; raises as :func:`check_digests`."""
    for name, expected in digests.items():
        path = directory / name
        if not path.is_file():
            raise DigestError(f"{path} is missing, and {source} lists it")
        digest = file_digest(path)
        if digest != expected:
            raise DigestError(f"{path} is damaged: its sha256 is {digest[:12]}..., and {expected[:12]}... in {source}")


def _read(path: Path) -> dict[str, str]:
    try:
        digests = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DigestError(f"{path} is missing, which would show that {path.parent} is intact") from None
    except (ValueError, RecursionError) as error:
        raise DigestError(f"{path} is damaged ({error})") from error
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise DigestError(f"{path} is damaged: not an object of digests")
    return digests
