"""A split on a storage that is larger than the room for it: read exactly, in time, and with damage named."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from preprocessing.shards.index import ShardError, read_index
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.split_index import SplitIndex
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.mirror import Mirror

MakeSample = Callable[..., Sample]
SHARDS, IN_EACH = 8, 5


@pytest.fixture
def machine(tmp_path: Path, sample: MakeSample) -> Mirror:
    """A machine with the sidecars of a split on a storage, and room for three of its eight shards."""
    writer = Mirror(tmp_path / "writer", str(tmp_path / "storage"))
    for shard in range(SHARDS):
        path = writer.root / "train" / f"shard-{shard:05d}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shard(path, [sample(shard * IN_EACH + number, rows=6, captions=1) for number in range(IN_EACH)], "f")
        writer.push(path, path.with_suffix(".json"))
    reading = Mirror(tmp_path / "reader", writer.address, 3 * path.stat().st_size)
    reading.pull(reading.root / "train", lambda name: name.endswith(".json"))
    return reading


def open_reader(machine: Mirror, limit: int = 3) -> ShardReader:
    return ShardReader(machine.root / "train", "grid", limit, verify=True, pin=machine.pinned_shard)


def here(machine: Mirror) -> set[int]:
    return {int(path.stem.removeprefix("shard-")) for path in machine.root.glob("train/shard-*.tar")}


def test_every_sample_of_a_split_larger_than_the_room(machine: Mirror) -> None:
    reader = open_reader(machine)
    assert here(machine) == set()
    for image in np.random.default_rng(0).permutation(len(reader)).tolist():
        assert reader.features(image)[0, 0] == image
        assert len(here(machine)) <= 3
    assert reader.shard_captions == [IN_EACH] * SHARDS


def test_all_records_in_order(machine: Mirror) -> None:
    reader = open_reader(machine)
    assert [meta["image_id"] for meta in reader.metas()] == [f"id{image}" for image in range(SHARDS * IN_EACH)]


def test_what_is_fetched_is_there_when_it_is_read(machine: Mirror) -> None:
    reader = open_reader(machine)
    reader.fetch(np.array([0, 1, IN_EACH]))
    deadline = time.monotonic() + 30
    while here(machine) != {0, 1} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert here(machine) == {0, 1}
    assert reader.features(IN_EACH)[0, 0] == IN_EACH


def test_shards_in_use_stay_while_another_reader_makes_room(machine: Mirror) -> None:
    first, second = open_reader(machine, limit=1), open_reader(machine, limit=1)
    first.features(0)
    for shard in range(1, SHARDS):
        second.features(shard * IN_EACH)
    assert 0 in here(machine)
    first.features(IN_EACH)  # lets go of the one before
    for shard in range(2, SHARDS):
        second.features(shard * IN_EACH)
    assert 0 not in here(machine)


def test_a_shard_that_has_gone_is_named_at_first_touch(machine: Mirror, tmp_path: Path) -> None:
    reader = open_reader(machine)
    (tmp_path / "storage" / "train" / "shard-00004.tar").unlink()
    with pytest.raises(ShardError, match=r"cannot open shard .*shard-00004.tar"):
        reader.features(4 * IN_EACH)


def flip_a_bit(path: Path, row: int) -> None:
    """Change the last value of a sample of a shard."""
    table = read_index(path).members["grid.npy"]
    data = bytearray(path.read_bytes())
    data[table.offset[row] + table.size[row] - 1] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_is_found_when_its_sample_is_read(shards: Path, tmp_path: Path) -> None:
    flip_a_bit(shards / "shard-00002.tar", row=1)
    ShardReader(shards, "grid").features(8)
    SplitIndex.read(shards, "grid", are_here=True).save(tmp_path)
    for index in (None, SplitIndex.load(tmp_path, shards, are_here=True)):
        reader = ShardReader(shards, "grid", verify=True, index=index)
        reader.features(7)
        for _ in range(2):
            with pytest.raises(ShardError, match=r"shard-00002.tar, sample 1: grid has changed since it was written"):
                reader.features(8)


def test_a_damaged_sample_of_a_storage_is_named_when_it_is_read(machine: Mirror, tmp_path: Path) -> None:
    flip_a_bit(tmp_path / "storage" / "train" / "shard-00002.tar", row=1)
    reader = open_reader(machine)
    reader.fetch(np.array([2 * IN_EACH]))
    reader.features(2 * IN_EACH)
    with pytest.raises(ShardError, match=r"shard-00002.tar, sample 1: grid has changed since it was written"):
        reader.features(2 * IN_EACH + 1)
