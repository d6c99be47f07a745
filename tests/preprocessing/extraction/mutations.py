"""Image files as they are found in the wild, made from good ones: cut short, flipped, mislabelled, bombs."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from preprocessing.datasets.scenes import render_scene

# (good bytes, generator) -> bytes
Mutation = Callable[[bytes, np.random.Generator], bytes]


def mutated(per_kind: int, seed: int = 0) -> list[tuple[str, bytes]]:
    """`per_kind` files of each kind in `MUTATIONS`, every one from another image, with its kind."""
    rng = np.random.default_rng(seed)
    files = []
    for kind, mutate in MUTATIONS.items():
        for number in range(per_kind):
            files.append((kind, mutate(_good(number), rng)))
    return files


def _good(number: int) -> bytes:
    """A scene in one of the usual formats."""
    picture = Image.open(io.BytesIO(render_scene(seed=7, index=number)))
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")[number % 6])
    return buffer.getvalue()


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(0, len(data)))]


def _flip(bits: int) -> Mutation:
    def flip(data: bytes, rng: np.random.Generator) -> bytes:
        changed = bytearray(data)
        for place in rng.integers(0, 8 * len(data), bits).tolist():
            changed[place // 8] ^= 1 << place % 8
        return bytes(changed)

    return flip


def _hole(data: bytes, rng: np.random.Generator) -> bytes:
    """A block that was never written, as after a crash."""
    start = int(rng.integers(0, len(data)))
    return data[:start] + b"\0" * (len(data) - start)


def _shuffled(data: bytes, rng: np.random.Generator) -> bytes:
    """Sectors in another order."""
    sectors = [data[start : start + 512] for start in range(0, len(data), 512)]
    return b"".join(sectors[index] for index in rng.permutation(len(sectors)))


def _other_file(_: bytes, rng: np.random.Generator) -> bytes:
    others = (
        b"",
        b"<html>404 Not Found</html>",
        b"PK\x03\x04" + b"\0" * 40,
        b"%PDF-1.7",
        b"\x7fELF",
        b"{}",
        rng.bytes(4000),
    )
    return others[int(rng.integers(len(others)))]


def _header_only(data: bytes, _: np.random.Generator) -> bytes:
    return data[:24]


def _glued(data: bytes, rng: np.random.Generator) -> bytes:
    """Something before the image."""
    return rng.bytes(10) + data


def _bomb(_: bytes, rng: np.random.Generator) -> bytes:
    """A few hundred bytes that announce, or unpack to, more pixels than anybody has memory for."""
    side = int(rng.integers(20_000, 65_000))
    if rng.integers(2):
        return struct.pack("<6sHHBBB", b"GIF89a", side, side, 0xF0, 0, 0) + bytes(100)
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1_000_000))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


MUTATIONS: dict[str, Mutation] = {
    "cut short": _cut,
    "one bit flipped": _flip(1),
    "twenty bits flipped": _flip(20),
    "a thousand bits flipped": _flip(1000),
    "a hole to the end": _hole,
    "sectors shuffled": _shuffled,
    "another file": _other_file,
    "header alone": _header_only,
    "bytes before it": _glued,
    "bomb": _bomb,
}
