"""JSON from outside, and errors of the libraries that read files."""

from __future__ import annotations

import pytest

from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.base import StorageError
from tests.hostile_text import JSON


@pytest.mark.parametrize(("data", "expected"), JSON.values(), ids=JSON)
def test_hostile_json_is_a_value_error_of_one_line(data: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as raised:
        parse_json(data)
    assert "\n" not in str(raised.value)


def test_json_of_any_kind() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [-9223372036854775808, 1.5, "\\ud83d\\ude00", null]}') == {
        "a": [-(2**63), 1.5, "\U0001f600", None]
    }


def test_an_error_of_a_library_is_told_as_ours() -> None:
    expected = r"^no x \(there is no 'counts'\); copy it again$"
    with (
        pytest.raises(StorageError, match=expected),
        damage_as(StorageError, "no x", "copy it again"),
    ):
        raise KeyError("counts")


def test_memory_that_runs_out_is_not_called_damage() -> None:
    expected = r"^memory ran out \(Unable to allocate 8 EiB\): free some and try again; if it happens again: no x; copy"
    with pytest.raises(StorageError, match=expected), damage_as(StorageError, "no x", "copy it again"):
        raise MemoryError("Unable to allocate 8 EiB")


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(StorageError, match="no network"), damage_as(ValueError, "the file x", "copy it again"):
        raise StorageError("no network")
