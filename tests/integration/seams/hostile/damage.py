"""The kinds of damage: each takes the folder of a case's world and what the case says, and changes files there."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import sqlite3
import struct
import tarfile
import time
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.storage.mirror import lock_file


def apply(root: Path, damage: dict[str, Any]) -> None:
    """Apply one entry of a case's list: the kind is its first key, the rest are that kind's arguments."""
    kind, target = next(iter(damage.items()))
    options = {name: value for name, value in damage.items() if name != kind}
    KINDS[kind](root, target, **options)


def _paths(root: Path, pattern: str) -> list[Path]:
    found = sorted(root.glob(pattern))
    assert found, f"nothing to damage: {pattern}"
    return found


def flip(root: Path, pattern: str, at: float = 0.5) -> None:
    """Change one byte of each file, at a fraction of its length."""
    for path in _paths(root, pattern):
        data = bytearray(path.read_bytes())
        data[min(int(at * len(data)), len(data) - 1)] ^= 0x01
        path.write_bytes(data)


def cut(root: Path, pattern: str, keep: float = 0.5) -> None:
    """Cut each file short, to a fraction of its length."""
    for path in _paths(root, pattern):
        data = path.read_bytes()
        path.write_bytes(data[: int(keep * len(data))])


def write(root: Path, name: str, text: str = "", data: str = "", times: int = 1) -> None:
    """Write a file: text, or bytes in base64, repeated; its folders are made."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((base64.b64decode(data) if data else text.replace("{root}", str(root)).encode()) * times)


def write_into(root: Path, pattern: str, text: str = "", times: int = 1) -> None:
    """Replace the contents of files that are there."""
    for path in _paths(root, pattern):
        path.write_bytes(text.encode() * times)


def append(root: Path, name: str, text: str, times: int = 1) -> None:
    """Append text to a file."""
    with (root / name).open("a", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text.replace("{root}", str(root)) * times)


def remove(root: Path, pattern: str) -> None:
    """Remove files."""
    for path in _paths(root, pattern):
        path.unlink()


def edit(root: Path, pattern: str, **values: Any) -> None:
    """Set keys of JSON files, `a.b` the key b of a; null removes one."""
    for path in _paths(root, pattern):
        content = json.loads(path.read_text(encoding="utf-8"))
        for key, value in values.items():
            *parents, last = key.split(".")
            node = content
            for parent in parents:
                node = node[int(parent) if isinstance(node, list) else parent]
            if value is None:
                del node[last]
            else:
                node[int(last) if isinstance(node, list) else last] = value
        path.write_text(json.dumps(content), encoding="utf-8")


def reverse(root: Path, pattern: str, key: str) -> None:
    """Reverse a list in JSON files; `a.b` is the key b of a, and `x.npy` one key."""
    for path in _paths(root, pattern):
        content = json.loads(path.read_text(encoding="utf-8"))
        *parents, last = re.findall(r"[^.]+\.npy|[^.]+", key)
        node = content
        for parent in parents:
            node = node[parent]
        node[last] = node[last][::-1]
        path.write_text(json.dumps(content), encoding="utf-8")


def link(root: Path, name: str, to: str) -> None:
    """Replace a file by a symbolic link."""
    path = root / name
    path.unlink(missing_ok=True)
    path.symlink_to(to.replace("{root}", str(root)))


def folder(root: Path, name: str) -> None:
    """Put a folder in the place of a file."""
    (root / name).unlink(missing_ok=True)
    (root / name).mkdir(parents=True)


def lock(root: Path, pattern: str, host: str, seconds: float) -> None:
    """Leave the lock of a process of a machine in folders, renewed some seconds ago; host "" is this machine."""
    for path in _paths(root, pattern):
        place = {"host": host or socket.gethostname(), "processes": os.readlink("/proc/self/ns/pid")}  # noqa: PTH115
        holder = {**place, "pid": 99_999_999, "began": "1", "since": time.time() - seconds, "token": "x"}
        file = lock_file(root / "work", path, "work").with_suffix(".json")
        file.write_text(json.dumps(holder), encoding="utf-8")
        os.utime(file, (time.time() - seconds,) * 2)


def sql(root: Path, pattern: str, statement: str) -> None:
    """Change a database of sqlite."""
    for path in _paths(root, pattern):
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(statement)
            database.commit()


def png(root: Path, name: str, width: int, height: int, rows: int = 1, comments: int = 0) -> None:
    """Write a PNG of four channels, of which only the first rows are there; `comments` are chunks of packed text."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    texts = [chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"x" * 1000))] * comments
    body = chunk(b"IDAT", zlib.compress(bytes(1 + 4 * width) * rows))
    (root / name).write_bytes(b"\x89PNG\r\n\x1a\n" + header + b"".join(texts) + body + chunk(b"IEND", b""))


def tar(root: Path, name: str, members: dict[str, str]) -> None:
    """Write a tar of texts; a member may have a name of any kind, and come twice where its name ends in `(again)`."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / name, "w") as archive:
        for member, text in members.items():
            info = tarfile.TarInfo(member.removesuffix("(again)"))
            info.size = len(text.encode())
            archive.addfile(info, BytesIO(text.encode()))


def npy(root: Path, name: str, shape: list[int]) -> None:
    """Write the header of an array of a shape, and none of its numbers."""
    header = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
    with (root / name).open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)


KINDS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        *(flip, cut, write, write_into, append, remove, edit, reverse, link, folder),
        *(lock, sql, png, tar, npy),
    )
}
