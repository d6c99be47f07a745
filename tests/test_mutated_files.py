"""A damaged file gives data or the error that its reader declares, whatever was done to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.readers import READERS
from vse_core.digests import write_digests

# Values that JSON of our own never has in their place.
HOSTILE = [
    "null",
    "-1",
    "1e400",
    "9" * 5000,
    str(2**63),
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    "[" * 5000,
    '"../x"',
    "true",
    '""',
    "NaN",
]


@st.composite
def changes(draw: st.DrawFn, original: bytes, is_json: bool) -> bytes:
    """Bytes of a file after it was cut, overwritten, shortened or repeated in the middle, or a value was replaced."""
    start = draw(st.integers(0, max(0, len(original) - 1)))
    end = min(len(original), start + draw(st.integers(1, 40)))
    kind = draw(st.integers(0, 7 if is_json else 4))
    if kind == 0:
        return original[:start]
    if kind == 1:
        return original[:start] + draw(st.binary(max_size=20)) + original[end:]
    if kind == 2:
        return original[:start] + original[start:end] * draw(st.integers(2, 4)) + original[end:]
    if kind == 3:
        return (
            original[:start] + bytes([original[start] ^ (1 << draw(st.integers(0, 7)))]) + original[start + 1 :]
            if original
            else b""
        )
    if kind == 4:
        return original[:start] + b"\0" * (len(original) - start)
    return replaced(json.loads(original), draw(st.integers(0, 10_000)), draw(st.sampled_from(HOSTILE))).encode()


def replaced(content: Any, place: int, value: str) -> str:
    """JSON with another value, or without one, in some place."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            places.append((node, key))
            walk(child)

    walk(content)
    if not places:
        return value
    node, key = places[place % len(places)]
    if place % 3 == 0:
        del node[key]
    else:
        node[key] = "<here>"
    return json.dumps(content).replace('"<here>"', value)


@pytest.mark.parametrize("name", READERS)
def test_a_valid_file_is_read(tmp_path: Path, name: str) -> None:
    READERS[name].write(tmp_path)
    write_digests(tmp_path)
    READERS[name].read(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_data_or_a_declared_error(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    reader.write(tmp_path)
    path = tmp_path / reader.file
    original = path.read_bytes()

    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
    )
    @given(changes(original, path.suffix == ".json"))
    def check(damaged: bytes) -> None:
        # A new file each time: the old one may still be mapped, and digests are remembered by the inode.
        path.unlink(missing_ok=True)
        path.write_bytes(damaged)
        write_digests(tmp_path)  # so that the reader itself has to see the damage
        message = ""
        try:
            reader.read(tmp_path)
        except reader.errors as error:
            message = str(error)
        assert len(message) < 2000
        assert "Traceback" not in message

    check()
