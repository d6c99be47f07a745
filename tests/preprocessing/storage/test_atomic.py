"""Atomic writes: the whole file or the old one, and nothing left over."""

import errno
from pathlib import Path
from unittest.mock import Mock

import pytest

from preprocessing.storage.atomic import open_atomic, write_bytes_atomic, write_json_atomic


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_bytes_atomic(path, b"old")
    with pytest.raises(TypeError, match="bytes-like"), open_atomic(path) as file:
        file.writelines([b"ne", "w"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.bin.0123.tmp").write_bytes(b"rest")
    (tmp_path / ".b.bin.0123.tmp").write_bytes(b"somebody else's")
    write_bytes_atomic(tmp_path / "a.bin", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.bin.0123.tmp", "a.bin"]


def test_json_bytes_depend_on_the_value_alone(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "a.json", {"b": 1, "a": "é"})
    write_json_atomic(tmp_path / "b.json", {"a": "é", "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json_atomic(tmp_path / "a.json", float("nan"))
    assert (tmp_path / "a.json").stat().st_size > 3


def test_an_unreadable_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_bytes_atomic(tmp_path / "absent" / "a.bin", b"")


def test_a_disk_that_is_full_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes_atomic(tmp_path / "a.json", b"x")
    assert caught.value.filename == str(tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
