"""Shards: what is in them, the same bytes for the same samples, and nothing half written."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.shards.index import ShardError, read_index, verify_shard
from preprocessing.shards.reader import ShardReader, read_records
from preprocessing.shards.writer import Sample, Skipped, write_shard

MakeSample = Callable[..., Sample]


def test_webdataset_reads_the_shard(tmp_path: Path, sample: MakeSample) -> None:
    written = [replace(sample(i), files={"jpg": b"not decoded"}) for i in range(4)]
    write_shard(tmp_path / "shard-00000.tar", written, "abc")
    read = list(webdataset.WebDataset(str(tmp_path / "shard-00000.tar"), shardshuffle=False).decode())
    assert [item["__key__"] for item in read] == [one.key for one in written]
    for item, one in zip(read, written, strict=True):
        assert item["grid.npy"].dtype == np.float16
        np.testing.assert_array_equal(item["grid.npy"], one.arrays["grid"])
        assert item["json"] == one.meta
        assert item["jpg"] == b"not decoded"


def test_a_table_of_grids_in_earlier_sidecars_is_ignored(tmp_path: Path, sample: MakeSample) -> None:
    path = tmp_path / "shard-00000.tar"
    index = write_shard(path, [sample(0, rows=6)], "abc")
    earlier = json.loads(path.with_suffix(".json").read_bytes()) | {"grids": {"grid": [[2, 3, 0]]}}
    path.with_suffix(".json").write_text(json.dumps(earlier))
    assert read_index(path).members == index.members


def test_the_sidecar_tells_where_everything_is(tmp_path: Path, sample: MakeSample) -> None:
    path = tmp_path / "shard-00000.tar"
    skipped = [Skipped("9", "id9", "9.jpg", "truncated"), Skipped("8", "id8", "8.jpg", "empty caption", "8#0")]
    index = write_shard(path, [sample(0), sample(1), *skipped, sample(2), sample(3)], "abc")
    data = path.read_bytes()
    assert index.bytes == len(data)
    assert index.sha256 == hashlib.sha256(data).hexdigest()
    assert index.keys == [f"{i:08d}" for i in range(4)]
    assert index.caption_counts == [5, 1, 0, 3]
    assert index.skipped == [
        {"key": "8", "image_id": "id8", "image": "8.jpg", "reason": "empty caption", "caption_id": "8#0"},
        {"key": "9", "image_id": "id9", "image": "9.jpg", "reason": "truncated"},
    ]
    assert json.loads(path.with_suffix(".json").read_bytes())["set_aside"] == index.skipped
    assert set(index.members) == {"grid.npy", "json"}
    with tarfile.open(path) as archive:
        for name, table in index.members.items():
            for row, key in enumerate(index.keys):
                member = archive.getmember(f"{key}.{name}")
                assert (member.offset_data, member.size) == (table.offset[row], table.size[row])
    for row in range(4):
        grid, record = index.members["grid.npy"], index.members["json"]
        array = np.load(io.BytesIO(data[grid.offset[row] : grid.offset[row] + grid.size[row]]), allow_pickle=False)
        np.testing.assert_array_equal(array, sample(row).arrays["grid"])
        assert json.loads(data[record.offset[row] : record.offset[row] + record.size[row]]) == sample(row).meta
    assert read_index(path) == index
    assert verify_shard(path, deep=True) == index


def test_bytes_depend_on_the_samples_alone(tmp_path: Path, sample: MakeSample, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for name in ("a", "b"):
        directory = tmp_path / name
        directory.mkdir()
        one = sample(0)
        other_order = dict(reversed(one.meta.items())) if name == "b" else one.meta
        # Neither the layout in memory nor the order of a dictionary is part of a sample.
        array = np.asfortranarray(one.arrays["grid"]) if name == "b" else one.arrays["grid"]
        write_shard(directory / "shard-00000.tar", [Sample(one.key, {"grid": array}, other_order)], "abc")
        contents.append([(directory / f"shard-00000.{kind}").read_bytes() for kind in ("tar", "json")])
        monkeypatch.setattr(time, "time", lambda: 1e9)
    assert contents[0] == contents[1]


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 3), st.binary(max_size=700), st.text(max_size=30)),
        min_size=1,
        max_size=6,
    )
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int, bytes, str]]) -> None:
    directory = tmp_path_factory.mktemp("shards")
    samples = []
    for number, (rows, captions, data, text) in enumerate(parts):
        array = np.random.default_rng(number).integers(0, 1 << 16, (rows, 3), dtype=np.uint16).view(np.float16)
        meta = {
            "image_id": text,
            "image": text,
            "split": "train",
            "captions": [{"caption_id": str(i), "text": text} for i in range(captions)],
        }
        samples.append(Sample(f"{number:03d}", {"grid": array, "boxes": array[:, :2]}, meta, {"jpg": data}))
    write_shard(directory / "shard-00000.tar", samples, "abc")
    verify_shard(directory / "shard-00000.tar", deep=True)
    for feature in ("grid", "boxes"):
        reader = ShardReader(directory, feature)
        for number, one in enumerate(samples):
            assert reader.features(number).tobytes() == one.arrays[feature].tobytes()
            assert reader.meta(number) == one.meta


def with_boxes(sample: Sample, **changes: np.ndarray) -> Sample:
    count = len(sample.arrays["grid"])
    boxes = np.arange(4 * count, dtype=np.float32).reshape(count, 4) + 1000.1
    return replace(sample, companions={"boxes": boxes, "objects": np.arange(count, dtype=np.int32), **changes})


def test_companions_keep_their_types(tmp_path: Path, sample: MakeSample) -> None:
    path = tmp_path / "shard-00000.tar"
    written = [with_boxes(sample(i)) for i in range(3)]
    index = write_shard(path, written, "abc")
    assert list(index.members) == ["boxes.npy", "grid.npy", "objects.npy", "json"]
    read = webdataset.WebDataset(str(path), shardshuffle=False).decode()
    for one, item in zip(written, read, strict=True):
        for name, array in {**one.arrays, **one.companions}.items():
            assert item[f"{name}.npy"].dtype == array.dtype
            np.testing.assert_array_equal(item[f"{name}.npy"], array)
    # Whoever trains sees the features alone, in the same place of the same interface.
    np.testing.assert_array_equal(ShardReader(tmp_path, "grid").features(2), sample(2).arrays["grid"])


SECOND = "00000001"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda one: [replace(one, key="a.1")], "numbers that ascend"),
        (lambda one: [one, one], "ascend"),
        (lambda one: [replace(one, key=SECOND), one], "ascend"),
        (lambda one: [replace(one, arrays={"grid": one.arrays["grid"].astype(np.float32)})], "float32"),
        (lambda one: [replace(one, arrays={"grid": one.arrays["grid"][:0]})], r"\(0, 8\)"),
        (lambda one: [replace(one, files={"../jpg": b""})], "lower-case"),
        (lambda one: [one, replace(one, key=SECOND, arrays={})], "those before it"),
        (lambda one: [replace(one, meta={})], "captions"),
        (lambda one: [replace(one, meta={"captions": [{"caption_id": "1"}]})], "caption_id and text"),
        (lambda one: [with_boxes(one, boxes=np.ones((5, 4)))], "'boxes' must be non-empty float32 or int32"),
        (lambda one: [with_boxes(one, boxes=np.ones((0, 4), np.float32))], r"shape \(0, 4\)"),
        (lambda one: [with_boxes(one, grid=np.ones((5, 4), np.float32))], "have a name of its own"),
        (lambda one: [with_boxes(one, **{"../boxes": np.ones((5, 4), np.float32)})], "lower-case"),
    ],
)
def test_a_sample_that_would_be_misread_is_refused(
    tmp_path: Path, sample: MakeSample, changed: Callable[[Sample], list[Sample]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_shard(tmp_path / "shard-00000.tar", changed(sample(0)), "abc")
    assert list(tmp_path.iterdir()) == []


def test_records_of_a_tar_that_was_changed(tmp_path: Path, sample: MakeSample) -> None:
    path = tmp_path / "shard-00000.tar"
    index = write_shard(path, [with_boxes(sample(0)), with_boxes(sample(1))], "abc")
    with path.open("r+b") as file:
        file.seek(index.members["boxes.npy"].offset[1])
        file.write(b"damage")
    with pytest.raises(ShardError, match=r"its sidecar says \w+: the tar was changed"):
        list(read_records(path))


def test_an_exception_in_the_samples_leaves_no_complete_shard(tmp_path: Path, sample: MakeSample) -> None:
    def failing() -> Iterator[Sample]:
        yield sample(0)
        raise RuntimeError("the extractor died")

    path = tmp_path / "shard-00000.tar"
    write_shard(path, [sample(0)], "old")
    with pytest.raises(RuntimeError, match="died"):
        write_shard(path, failing(), "new")
    with pytest.raises(ShardError, match="incomplete"):
        verify_shard(path, deep=False)
    assert {entry.suffix for entry in tmp_path.iterdir()} == {".tar", ".parquet"}


WRITER = """
import sys
from pathlib import Path
import numpy as np
from preprocessing.shards.writer import Sample, Skipped, write_shard

array = np.ones((200, 64), dtype=np.float16)
meta = {"image_id": "0", "image": "0.jpg", "split": "train", "captions": []}
samples = [Sample(f"{i:04d}", {"grid": array}, meta) for i in range(20)]
print("ready", flush=True)
while True:
    write_shard(Path(sys.argv[1]), samples, "abc")
"""


def test_a_killed_writer_leaves_a_complete_shard_or_none(tmp_path: Path, sample: MakeSample) -> None:
    path = tmp_path / "shard-00000.tar"
    root = Path(__file__).parents[3]
    for attempt in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=root, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.004 * attempt)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        if path.with_suffix(".json").exists():
            verify_shard(path, deep=True)
    write_shard(path, [sample(0)], "abc")
    verify_shard(path, deep=True)
    assert sorted(entry.suffix for entry in tmp_path.iterdir()) == [".json", ".parquet", ".tar"]
