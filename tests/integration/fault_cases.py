"""Every failure of S3 that is injected: how often, into what, and what must come of it; for the tests and the table."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.storage.s3 import S3Storage

SMALL = random.Random(0).randbytes(300_000)
# More than one part of an upload: S3's smallest part has 5 MiB.
LARGE = random.Random(1).randbytes((5 << 20) + 100_000)


@dataclass(frozen=True)
class Case:
    """One failure.

    Attributes:
        failure: in words.
        action: what is being done: a key of `ACTIONS`.
        fault: arguments of `faults.Fault`.
        message: "" if the action succeeds after all, otherwise what the one error says.
        is_found_by_moto: false for what a real server alone compares.
    """

    failure: str
    action: str
    fault: dict[str, Any]
    message: str = ""
    is_found_by_moto: bool = True


def read(storage: S3Storage, folder: Path) -> bytes:
    """Read an object."""
    return storage.read("small")


def download(storage: S3Storage, folder: Path) -> bytes:
    """Copy an object to a file."""
    storage.download("small", folder / "copy")
    return (folder / "copy").read_bytes()


def read_range(storage: S3Storage, folder: Path) -> bytes:
    """Read an object by halves."""
    half = len(SMALL) // 2
    parts = [f"bytes=0-{half - 1}", f"bytes={half}-{2 * half - 1}"]
    return b"".join(storage.read("small", Range=part) for part in parts)


def write(storage: S3Storage, folder: Path) -> bytes:
    """Write an object at once."""
    (folder / "new").write_bytes(SMALL)
    storage.upload(folder / "new", "new")
    return storage.read("new")


def write_parts(storage: S3Storage, folder: Path) -> bytes:
    """Write an object in parts."""
    (folder / "large").write_bytes(LARGE)
    storage.upload(folder / "large", "large")
    return storage.read("large")


def download_parts(storage: S3Storage, folder: Path) -> bytes:
    """Copy an object to a file in parts."""
    (folder / "large").write_bytes(LARGE)
    storage.upload(folder / "large", "large")
    storage.download("large", folder / "copy")
    return (folder / "copy").read_bytes()


def list_names(storage: S3Storage, folder: Path) -> bytes:
    """List a folder."""
    return b"".join(SMALL for entry in storage.list() if entry.name == "small")


ACTIONS: dict[str, Callable[[S3Storage, Path], bytes]] = {
    "read": read,
    "copy to a file": download,
    "copy to a file in parts": download_parts,
    "ranged read": read_range,
    "write": write,
    "write in parts": write_parts,
    "list": list_names,
}
WRITES = ("write", "write in parts")
IN_PARTS = ("write in parts", "copy to a file in parts")


def _is_completion(path: str) -> bool:
    return "uploadId=" in path


THROTTLED, ALWAYS = "error:503:SlowDown", 1000
CASES = (
    Case("throttled (503 SlowDown) twice", "read", {"kind": THROTTLED, "times": 2}),
    Case("throttled (503 SlowDown) twice", "write", {"kind": THROTTLED, "method": "PUT", "times": 2}),
    Case("throttled (503 SlowDown) twice", "list", {"kind": THROTTLED, "times": 2}),
    Case("one part throttled", "write in parts", {"kind": THROTTLED, "method": "PUT", "after": 1}),
    Case("internal error (500)", "read", {"kind": "error:500:InternalError"}),
    Case("connection reset before the answer", "read", {"kind": "reset before", "times": 2}),
    Case("connection reset in the body", "read", {"kind": "reset", "times": 2}),
    Case("connection reset in the body", "copy to a file", {"kind": "reset", "times": 2}),
    Case("connection reset in the body", "copy to a file in parts", {"kind": "reset", "times": 2}),
    Case("body cut short", "copy to a file", {"kind": "cut", "times": 2}),
    Case("body cut short", "ranged read", {"kind": "cut", "times": 2}),
    Case("listing cut short", "list", {"kind": "cut"}),
    Case("body shorter than it was, and announced so", "copy to a file", {"kind": "shortened"}),
    Case("listing shorter than it was, and announced so", "list", {"kind": "shortened"}),
    Case("a byte of the body changed", "copy to a file", {"kind": "corrupt", "times": 2}),
    Case("a byte of a part changed", "copy to a file in parts", {"kind": "corrupt", "after": 1}),
    Case("a byte changed on the way to the server", "write", {"kind": "corrupt request", "method": "PUT"}),
    Case(
        "a byte of a part changed on the way",
        "write in parts",
        {"kind": "corrupt request", "method": "PUT"},
        is_found_by_moto=False,
    ),
    Case("the server names another checksum than was sent", "write", {"kind": "wrong etag", "method": "PUT"}),
    Case("the answer to a write is lost", "write", {"kind": "answer lost", "method": "PUT"}),
    Case(
        "the answer to the end of an upload is lost",
        "write in parts",
        {"kind": "answer lost", "method": "POST", "holds": _is_completion},
    ),
    Case("no answer within the time limit", "read", {"kind": "slow"}),
    Case("throttled without end", "read", {"kind": THROTTLED, "times": ALWAYS}, "slow down for longer than we waited"),
    Case("every copy damaged", "copy to a file", {"kind": "corrupt", "times": ALWAYS}, "its checksum was wrong"),
    Case("every body cut short", "copy to a file", {"kind": "cut", "times": ALWAYS}, "cannot read s3://"),
    Case("session expired", "read", {"kind": "error:403:ExpiredToken", "times": ALWAYS}, "get new credentials"),
    Case(
        "session expired",
        "write",
        {"kind": "error:403:ExpiredToken", "method": "PUT", "times": ALWAYS},
        "get new credentials",
    ),
    Case("forbidden", "read", {"kind": "error:403:AccessDenied", "times": ALWAYS}, "ask for the permissions"),
)
