"""Files are known by their content, read once, with or without a database that can be used."""

import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xxhash

from preprocessing.extraction.file_hashes import FileHashes


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "images"
    folder.mkdir()
    paths = [folder / f"{number}.jpg" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * (number + 1))
    return paths


def stamps(database: Path, files: list[Path], is_read_only: bool = False) -> tuple[list[tuple[int, str] | None], int]:
    """The stamps, and how many files were read for them."""
    read: list[int] = []
    return FileHashes(database, is_read_only, read.append).stamps(files), sum(read)


def test_a_file_is_read_once(tmp_path: Path, files: list[Path]) -> None:
    database = tmp_path / "work" / "hashes.sqlite"
    expected = [(path.stat().st_size, xxhash.xxh3_128(path.read_bytes()).hexdigest()) for path in files]
    assert stamps(database, [*files, files[0]]) == ([*expected, expected[0]], 5)
    assert stamps(database, files) == (expected, 0)


def test_a_copy_has_the_stamps_of_the_original(tmp_path: Path, files: list[Path]) -> None:
    database = tmp_path / "hashes.sqlite"
    first, _ = stamps(database, files)
    copy = Path(shutil.copytree(files[0].parent, tmp_path / "copy", copy_function=shutil.copyfile))
    assert stamps(database, [copy / path.name for path in files]) == (first, 5)
    for path in files:
        os.utime(path, ns=(0, 17))
    assert stamps(database, files) == (first, 5)


def test_a_change_is_found_by_its_time(tmp_path: Path, files: list[Path]) -> None:
    database = tmp_path / "hashes.sqlite"
    first, _ = stamps(database, files)
    files[2].write_bytes(b"abc")
    os.utime(files[2], ns=(0, 1))
    changed, read = stamps(database, files)
    assert read == 1
    assert [one == other for one, other in zip(first, changed, strict=True)] == [True, True, False, True, True]


def test_what_is_no_file_has_none(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found, _ = stamps(tmp_path / "hashes.sqlite", [tmp_path / "missing", tmp_path, Path("a\0b"), pipe])
    assert found == [None] * 4


def test_a_dry_run_reads_the_database_and_writes_nothing(tmp_path: Path, files: list[Path]) -> None:
    database = tmp_path / "work" / "hashes.sqlite"
    first, _ = stamps(database, files, is_read_only=True)
    assert not database.parent.exists()
    stamps(database, files[:3])
    before = database.read_bytes()
    assert stamps(database, files, is_read_only=True) == (first, 2)
    assert database.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database, " * 100, b"SQLite format 3\0" + b"\1" * 4000])
def test_a_database_that_is_none_is_named_and_left_alone(
    tmp_path: Path, files: list[Path], content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "hashes.sqlite"
    database.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        found, read = stamps(database, files)
    assert found == stamps(tmp_path / "other.sqlite", files)[0]
    assert read == 5
    assert str(database) in caplog.text
    assert database.read_bytes() == content


def test_several_at_the_same_time(tmp_path: Path, files: list[Path]) -> None:
    database = tmp_path / "hashes.sqlite"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: FileHashes(database).stamps(files), range(16)))
    assert all(each == found[0] for each in found)
    assert stamps(database, files)[1] == 0
