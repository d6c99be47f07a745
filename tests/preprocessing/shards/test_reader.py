"""Random access: the right sample under every number, bounded resources, and clear errors."""

import json
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.split_index import SplitIndex
from preprocessing.shards.writer import Sample, Skipped, write_shard

MakeSample = Callable[..., Sample]


def test_samples_come_under_their_numbers_in_any_order(shards: Path, sample: MakeSample) -> None:
    reader = ShardReader(shards, "grid")
    assert len(reader) == 13
    numbers = list(range(13)) * 3
    random.Random(0).shuffle(numbers)
    for number in numbers:
        np.testing.assert_array_equal(reader.features(number), sample(number).arrays["grid"])
        assert reader.meta(number) == sample(number).meta


def test_captions_are_numbered_image_after_image(shards: Path) -> None:
    reader = ShardReader(shards, "grid")
    flat = [(image, place) for image in range(13) for place in range(len(reader.meta(image)["captions"]))]
    assert reader.num_captions == len(flat) == 32
    images = reader.images_of(np.arange(32))
    assert list(zip(images.tolist(), (np.arange(32) - reader.caption_starts[images]).tolist(), strict=True)) == flat
    assert reader.caption_counts.tolist() == [(5, 1, 0, 3)[image % 4] for image in range(13)]
    assert reader.caption_counts.dtype == np.int64


def open_descriptors(directory: Path) -> int:
    links = [os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd")]
    return sum(link.startswith(str(directory)) for link in links)


def test_shards_are_opened_lazily_and_a_bounded_number_at_once(tmp_path: Path, sample: MakeSample) -> None:
    for shard in range(6):
        write_shard(tmp_path / f"shard-{shard:05d}.tar", [sample(shard, rows=4)], "abc")
    reader = ShardReader(tmp_path, "grid", max_open_shards=2)
    assert open_descriptors(tmp_path) == 0
    held = reader.features(0)
    for image in (1, 2, 3, 4, 5, 1, 0, 5):
        assert reader.features(image)[0, 0] == image
    # Two mapped, and the one that an array handed out earlier still needs.
    assert open_descriptors(tmp_path) <= 3
    assert held[0, 0] == 0


def test_several_threads_may_read(tmp_path: Path, sample: MakeSample) -> None:
    for shard in range(5):
        write_shard(tmp_path / f"shard-{shard:05d}.tar", [sample(shard * 2), sample(shard * 2 + 1)], "abc")
    reader = ShardReader(tmp_path, "grid", max_open_shards=2)

    def read(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(400):
            image = order.randrange(10)
            assert reader.features(image)[0, 0] == image

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        (["shard-00000.tar"], "shard-00000.tar is missing"),
        (["shard-00000.json"], "shard-00000.tar is incomplete"),
        (["shard-00001.tar", "shard-00001.json"], "shard-00001.tar is missing"),
        (["shard-00002.json"], "shard-00002.tar is incomplete"),
        ([f"shard-{n:05d}.{kind}" for n in range(3) for kind in ("tar", "json")], "run the extraction first"),
    ],
)
def test_missing_shards_are_named(shards: Path, remove: list[str], message: str) -> None:
    for name in remove:
        (shards / name).unlink()
    with pytest.raises(ShardError, match=message):
        ShardReader(shards, "grid")


def test_a_truncated_shard_is_named_at_construction(shards: Path) -> None:
    tar = shards / "shard-00002.tar"
    tar.write_bytes(tar.read_bytes()[:2000])
    with pytest.raises(ShardError, match=r"shard-00002\.tar has 2000 bytes"):
        ShardReader(shards, "grid")


def test_a_shard_that_vanishes_or_shrinks_later_is_named(shards: Path) -> None:
    reader = ShardReader(shards, "grid")
    tar = shards / "shard-00002.tar"
    tar.write_bytes(tar.read_bytes()[:-512])
    with pytest.raises(ShardError, match=r"shard-00002.tar has \d+ bytes now"):
        reader.features(12)
    tar.unlink()
    with pytest.raises(ShardError, match="cannot open shard"):
        reader.features(12)


def test_mixed_fingerprints_are_refused(shards: Path, sample: MakeSample) -> None:
    write_shard(shards / "shard-00003.tar", [sample(20)], "xyz")
    with pytest.raises(ShardError, match=r"shard-00003.tar comes from another run than shard-00000.tar"):
        ShardReader(shards, "grid")


def test_an_absent_feature_is_named_with_those_there_are(shards: Path) -> None:
    with pytest.raises(ShardError, match=r"\['grid.npy', 'json'\], not 'butd.npy'"):
        ShardReader(shards, "butd")


def test_nothing_but_skipped_images(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard-00000.tar", [Skipped("0", "id0", "0.jpg", "truncated")], "abc")
    reader = ShardReader(tmp_path, "grid")
    assert len(reader) == reader.num_captions == 0
    with pytest.raises(ShardError, match="all images were skipped"):
        _ = reader.feature_dim


def test_another_width_than_the_first_image(tmp_path: Path, sample: MakeSample) -> None:
    narrow = Sample("00000001", {"grid": np.ones((3, 4), dtype=np.float16)}, sample(1).meta)
    write_shard(tmp_path / "shard-00000.tar", [sample(0), narrow], "abc")
    reader = ShardReader(tmp_path, "grid")
    with pytest.raises(ShardError, match="sample 1: 4 wide, not 8"):
        reader.features(1)


def overwrite(shards: Path, member: str, row: int, start: int, data: bytes) -> None:
    table = json.loads((shards / "shard-00000.json").read_text())["members"][member]
    with (shards / "shard-00000.tar").open("r+b") as file:
        file.seek(table["offset"][row] + start)
        file.write(data)


@pytest.mark.parametrize("data", [b"\x00" * 128, b"\x93NUMPY\x02", b"\x93NUMPY\x01\x00\xff\xff"])
def test_a_damaged_array_is_named(shards: Path, data: bytes) -> None:
    overwrite(shards, "grid.npy", 2, 0, data)
    reader = ShardReader(shards, "grid")
    reader.features(1)
    with pytest.raises(ShardError, match=r"shard-00000.tar, sample 2: grid.npy is damaged"):
        reader.features(2)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((5, 8), dtype=np.float32),
        np.ones((5, 8), dtype=">f2"),
        np.ones((3, 4, 5), dtype=np.float16),
        np.array([{}]),
    ],
    ids=["float32", "big-endian", "three dimensions", "objects"],
)
def test_arrays_of_another_kind_are_refused(tmp_path: Path, sample: MakeSample, array: np.ndarray) -> None:
    """Written by another program under the same name; an array of objects would be a pickle."""
    good = sample(0, rows=200)
    write_shard(tmp_path / "shard-00000.tar", [good, sample(1, rows=200)], "abc")
    with (tmp_path / "header.npy").open("wb") as file:
        np.save(file, array)
    header = (tmp_path / "header.npy").read_bytes()
    header = header[: 10 + int.from_bytes(header[8:10], "little")]
    overwrite(tmp_path, "grid.npy", 1, 0, header)
    with pytest.raises(ShardError, match="sample 1"):
        ShardReader(tmp_path, "grid").features(1)


def test_captions_are_read_without_the_tar(shards: Path, sample: MakeSample) -> None:
    records = [sample(number).meta for number in range(13)]
    for tar in shards.glob("*.tar"):
        tar.write_bytes(bytes(tar.stat().st_size))
    reader = ShardReader(shards, "grid", verify=True)
    assert list(reader.metas()) == records
    assert list(reader.texts()) == [caption["text"] for record in records for caption in record["captions"]]


def test_captions_of_shards_that_were_written_before_there_were_tables(shards: Path, sample: MakeSample) -> None:
    for table in shards.glob("*.parquet"):
        table.unlink()
    assert list(ShardReader(shards, "grid").metas()) == [sample(number).meta for number in range(13)]


@pytest.mark.parametrize("columns", [{"image_id": ["0"]}, {"captions": [1]}])
def test_a_table_that_holds_no_captions(shards: Path, columns: dict[str, list[object]]) -> None:
    pq.write_table(pa.table(columns), shards / "shard-00000.parquet")
    with pytest.raises(ShardError, match=r"shard-00000.parquet cannot be read \(its columns are not"):
        ShardReader(shards, "grid").meta(0)


def test_a_mapped_index_is_that_of_the_sidecars(shards: Path, tmp_path: Path, sample: MakeSample) -> None:
    read, folder = SplitIndex.read(shards, "grid", are_here=True), tmp_path / "index"
    folder.mkdir()
    read.save(folder)
    for sidecar in shards.glob("*.json"):
        sidecar.unlink()
    mapped = SplitIndex.load(folder, shards, are_here=True)
    assert mapped.tars == read.tars
    assert isinstance(mapped.places.base, np.memmap)
    reader = ShardReader(shards, "grid", index=mapped)
    for number in range(13):
        np.testing.assert_array_equal(reader.features(number), sample(number).arrays["grid"])
        assert reader.meta(number) == sample(number).meta
    assert reader.shard_captions == [15, 0, 17]
    (shards / "shard-00002.tar").unlink()
    SplitIndex.load(folder, shards, are_here=False)
    with pytest.raises(ShardError, match=r"shard-00002\.tar is missing"):
        SplitIndex.load(folder, shards, are_here=True)


def test_an_index_that_cannot_be_read(shards: Path, tmp_path: Path) -> None:
    SplitIndex.read(shards, "grid", are_here=True).save(tmp_path)
    (tmp_path / "places.npy").write_bytes(b"")
    with pytest.raises(ShardError, match=r"cannot be read .*; delete the folder and train again"):
        SplitIndex.load(tmp_path, shards, are_here=False)


def test_a_record_with_another_number_of_captions(shards: Path) -> None:
    path = shards / "shard-00000.json"
    data = json.loads(path.read_text())
    data["caption_counts"][0] = 4
    path.write_text(json.dumps(data))
    with pytest.raises(ShardError, match="not those that its sidecar counts"):
        ShardReader(shards, "grid").meta(0)
