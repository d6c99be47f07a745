"""A mirrored work folder: two machines are two folders, the storage is a third."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from preprocessing.storage import mirror
from preprocessing.storage.base import Entry, LocalStorage, StorageError
from preprocessing.storage.lease import FolderLock
from preprocessing.storage.mirror import Mirror, lock_file, remove_locks


@pytest.fixture
def here(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "here", str(tmp_path / "storage"))


@pytest.fixture
def there(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "there", str(tmp_path / "storage"))


def write(path: Path, data: bytes = b"data") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def names(folder: Path) -> set[str]:
    """Names of all files but those of locks, which lie in a tree of their own."""
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "locks" not in path.parts}


def test_without_an_address_nothing_happens(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, None)
    path = write(tmp_path / "stage" / "file")
    mirror.push(path)
    mirror.push_missing(path.parent, ["file"])
    mirror.push_folder(path.parent)
    mirror.make_room()
    with mirror.pinned(path.parent):
        pass
    assert mirror.has(path)
    assert mirror.stored(path.parent) == {}
    assert names(tmp_path) == {"stage/file"}


def test_what_is_pushed_can_be_pulled_elsewhere(here: Mirror, there: Mirror) -> None:
    here.push(write(here.root / "stage/one", b"1"), write(here.root / "stage/deep/two", b"22"))
    stored = there.stored(there.root / "stage")
    assert {name: entry.bytes for name, entry in stored.items()} == {"one": 1, "deep/two": 2}
    assert there.has(there.root / "stage/one")
    there.pull(there.root / "stage", lambda name: name == "one")
    assert names(there.root) == {"stage/one"}
    there.pull(there.root / "stage")
    assert (there.root / "stage/deep/two").read_bytes() == b"22"


def test_a_file_of_another_size_is_replaced(here: Mirror, there: Mirror) -> None:
    here.push(write(here.root / "stage/one", b"whole"))
    write(there.root / "stage/one", b"cut")
    there.pull(there.root / "stage")
    assert (there.root / "stage/one").read_bytes() == b"whole"


def test_missing_files_are_pushed(here: Mirror) -> None:
    here.push(write(here.root / "stage/one"))
    for name in ("two", "deep/three", "four"):
        write(here.root / "stage" / name)
    with patch.object(LocalStorage, "upload", autospec=True, side_effect=LocalStorage.upload) as upload:
        here.push_missing(here.root / "stage", ["one", "two", "deep/three", "made elsewhere"])
    assert sorted(call.args[2] for call in upload.mock_calls) == ["stage/deep/three", "stage/two"]


def test_several_at_once_copy_once(here: Mirror, there: Mirror) -> None:
    for number in range(5):
        here.push(write(here.root / f"stage/{number}", bytes(1000)))
    with (
        patch.object(LocalStorage, "download", autospec=True, side_effect=LocalStorage.download) as download,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda _: there.pull(there.root / "stage"), range(4)))
    assert sorted(call.args[1] for call in download.mock_calls) == [f"stage/{number}" for number in range(5)]


def shards(mirror: Mirror, count: int) -> list[Path]:
    paths = [write(mirror.root / f"stage-{number}" / "shard-00000.tar", bytes(100)) for number in range(count)]
    mirror.push(*paths)
    return paths


def limited(mirror: Mirror, limit: int) -> Mirror:
    return Mirror(mirror.root, mirror.address, limit)


def test_shards_used_longest_ago_make_room(here: Mirror, there: Mirror) -> None:
    shards(here, 4)
    small = limited(there, 250)
    for number in (0, 1, 0, 2):
        small.pull(small.root / f"stage-{number}")
    assert names(small.root) == {"stage-0/shard-00000.tar", "stage-2/shard-00000.tar"}
    small.pull(small.root / "stage-3")
    assert names(small.root) == {"stage-2/shard-00000.tar", "stage-3/shard-00000.tar"}


def test_pinned_shards_and_those_without_a_copy_stay(here: Mirror) -> None:
    paths = shards(here, 2)
    only_here = write(here.root / "stage-x" / "shard-00000.tar", bytes(100))
    full = limited(here, 100)
    with here.pinned(paths[0].parent):
        full.make_room()
        assert [path.exists() for path in (*paths, only_here)] == [True, False, True]
    full.make_room()
    assert [path.exists() for path in (*paths, only_here)] == [False, False, True]


def test_a_shard_stays_until_its_copy_is_checked(here: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = LocalStorage.upload

    def checked(self: LocalStorage, path: Path, name: str) -> None:
        upload(self, path, name)
        limited(here, 0).make_room()
        assert path.read_bytes() == bytes(100)

    monkeypatch.setattr(LocalStorage, "upload", checked)
    (path,) = shards(here, 1)
    limited(here, 0).make_room()
    assert not path.exists()


def test_one_pinned_shard_stays(here: Mirror) -> None:
    first, second = (write(here.root / "stage" / f"shard-{number:05d}.tar", bytes(100)) for number in range(2))
    here.push(first, second)
    with here.pinned_shard(first):
        limited(here, 0).make_room()
        assert (first.exists(), second.exists()) == (True, False)
    limited(here, 0).make_room()
    assert not first.exists()
    with here.pinned_shard(first):
        assert first.read_bytes() == bytes(100)


def test_locks_are_removed_unless_somebody_holds_them(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "1"
    free, held = (lock_file(tmp_path, folder / name, "work") for name in ("checkpoints", "."))
    free.touch()
    elsewhere = write(lock_file(tmp_path, folder / "elsewhere", "work").with_suffix(".json"))
    lock = FolderLock(held, 60)
    lock.take()
    remove_locks(tmp_path, folder)
    assert lock.renew()
    assert {path for path in folder.parents[1].rglob("*") if path.is_file()} == {
        held,
        held.with_suffix(".json"),
        elsewhere,
    }
    lock.release()
    elsewhere.unlink()
    remove_locks(tmp_path, folder)
    assert not (tmp_path / "locks" / "train" / "1").exists()


def test_more_than_the_limit_at_once_is_an_error(here: Mirror, there: Mirror) -> None:
    shards(here, 3)
    small = limited(there, 250)
    directories = [small.root / f"stage-{number}" for number in range(3)]
    message = r"300 bytes of shards .* raise storage.cache_gb"
    with pytest.raises(StorageError, match=message), small.pinned(*directories):
        pass


def test_a_folder_appears_when_it_is_complete(here: Mirror, there: Mirror) -> None:
    for name in ("weights", "state"):
        write(here.root / "run/step-1" / name, name.encode())
    here.push(here.root / "run/step-1/weights")  # and is killed
    with pytest.raises(StorageError, match="there is no"):
        there.pull_folder(there.root / "run/step-1")
    assert not (there.root / "run/step-1").exists()
    here.push_folder(here.root / "run/step-1")
    there.pull_folder(there.root / "run/step-1")
    assert (there.root / "run/step-1/state").read_bytes() == b"state"
    here.drop_folder(here.root / "run/step-1")
    assert here.stored(here.root / "run") == {}
    assert names(here.root / "run/step-1") == {"weights", "state"}


OUTSIDE = ("../../outside", "/dev/null/outside", "..\\outside", "C:outside", "a/../../../outside", "nul\0")


@pytest.mark.parametrize("name", OUTSIDE)
def test_keys_that_lead_out_of_the_work_folder_are_refused(
    there: Mirror, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    keys = [Entry(f"stage/{key}", 4, "") for key in ("one", name)]
    monkeypatch.setattr(LocalStorage, "list", lambda *_: iter(keys))
    monkeypatch.setattr(LocalStorage, "download", lambda _self, _name, path: write(path))
    for use in (there.pull, there.stored, there.drop_folder):
        with pytest.raises(StorageError, match=r"storage.*, stage: the name .* is not a path inside its folder"):
            use(there.root / "stage")
    assert names(there.root.parent) == set()


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_list_of_contents_that_leads_out_of_its_folder_is_refused(here: Mirror, there: Mirror, name: str) -> None:
    folder = Path(str(here.address)) / "run/step-1"
    write(folder / "contents.json", json.dumps({name: 4}).encode())
    if "\0" not in name and name[0] != "/":
        write(folder / name)
    before = names(there.root.parent)
    with pytest.raises(StorageError, match=r"run/step-1/contents\.json: the name .* is not a path inside its folder"):
        there.pull_folder(there.root / "run/step-1")
    assert names(there.root.parent) == before


def test_a_shard_that_is_nowhere_is_left_to_its_reader(here: Mirror) -> None:
    missing = here.root / "stage" / "shard-00000.tar"
    with here.pinned_shard(missing):
        assert not missing.exists()


def size(path: Path) -> int:
    """Bytes of a file; none where another thread has just removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_shards_that_are_being_copied_count(here: Mirror, there: Mirror) -> None:
    stored = [write(here.root / "stage" / f"shard-{number:05d}.tar", bytes(100)) for number in range(6)]
    here.push(*stored)
    small = limited(there, 350)
    write(small.root / "locks/stage/shard-00009.tar.reserved", bytes(300))  # of a process that was killed
    most = []

    def hold(number: int) -> None:
        with small.pinned_shard(small.root / "stage" / f"shard-{number:05d}.tar"):
            most.append(sum(map(size, small.root.glob("stage/shard-*.tar"))))

    for first in (0, 3):
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(hold, range(first, first + 3)))
    assert max(most) <= 350
    assert not list(small.root.rglob("*.reserved"))


def test_a_shard_that_arrives_while_room_is_measured_counts(
    here: Mirror, there: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(here, 2)
    small = limited(there, 150)
    small.pull(small.root / "stage-0")
    arriving = small.root / "stage-1" / "shard-00000.tar"
    arriving.parent.mkdir()
    measured = mirror._shards

    def arrives_afterwards(root: Path) -> list[tuple[Path, os.stat_result]]:
        found = list(measured(root))
        arriving.write_bytes(bytes(100))
        return found

    monkeypatch.setattr(mirror, "_shards", arrives_afterwards)
    with small._reserved(arriving, 100):
        small.make_room()
    assert names(small.root) == {"stage-1/shard-00000.tar"}


def test_what_a_killed_process_has_left_gives_way_to_what_another_machine_has_made(here: Mirror, there: Mirror) -> None:
    """Sidecars have one size, as digests have; where both have the same, or the storage has none, shards stay."""
    made = {name: [f"stage/{name}.{kind}" for kind in ("json", "parquet", "tar")] for name in ("one", "same", "new")}
    for name, files in made.items():
        for file in files:
            write(here.root / file, b"a")
            if name != "new":
                there.push(write(there.root / file, b"b" if name == "one" else b"a"))
    shards = [here.root / f"stage/{name}.tar" for name in made]
    Mirror(here.root, None).drop_leftovers(shards)
    assert names(here.root) == {file for files in made.values() for file in files}
    here.drop_leftovers(shards)
    assert names(here.root) == {*made["same"], *made["new"]}
    here.pull(here.root / "stage")
    assert {(here.root / file).read_bytes() for file in made["one"]} == {b"b"}
