"""Records into shards, with an extractor that is simple enough to know its output."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from preprocessing.datasets import Caption, Record
from preprocessing.extraction import identity
from preprocessing.extraction.extract import (
    NO_CAPTION,
    NOT_UTF8,
    ShardSpec,
    extract_shard,
    shard_specs,
)
from preprocessing.extraction.identity import SplitSummary, image_stamps, summarize
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError, read_image_bytes
from preprocessing.shards.reader import ShardReader
from preprocessing.storage import s3
from preprocessing.storage.base import Entry, LocalStorage
from preprocessing.storage.mirror import Mirror


class NumberExtractor:
    """The features of ".../7" are 2 x 3 values of 7; ".../bad" is no image."""

    name = "grid"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.loaded = 0

    def load(self, uri: str) -> int:
        self.loaded += 1
        if uri.endswith("bad"):
            raise ImageError("truncated")
        return int(uri.rpartition("/")[2])

    def __call__(self, items: Sequence[Any]) -> list[npt.NDArray[np.float16]]:
        self.batches.append(len(items))
        return [np.full((2, 3), item, np.float16) for item in items]

    def identity(self) -> dict[str, Any]:
        return {}


class ListDataset:
    """A data set that is given."""

    splits = ("train",)

    def __init__(self, records: Sequence[Record], root: str = "/images") -> None:
        self._records, self.root = records, root

    def records(self, split: str) -> Iterator[Record]:
        return iter(self._records)


def record(name: str, *captions: str) -> Record:
    texts = captions or (f"a {name}",)
    numbered = tuple(Caption(f"{name}#{index}", text) for index, text in enumerate(texts))
    return Record(name, f"/images/{name}", "train", numbered)


def spec(directory: Path, records: Sequence[Record], first: int = 0) -> ShardSpec:
    return ShardSpec(directory / "shard-00000.tar", "ab" * 32, "/images", first, tuple(records))


def test_features_and_records_arrive(tmp_path: Path) -> None:
    records = [record(str(number), f"one {number}", "two") for number in range(7)]
    index = extract_shard(spec(tmp_path, records, first=40), NumberExtractor(), batch_size=3)
    assert index.keys == [f"{key:08d}" for key in range(40, 47)]
    reader = ShardReader(tmp_path, "grid")
    for number in range(7):
        np.testing.assert_array_equal(reader.features(number), np.full((2, 3), number, np.float16))
        assert reader.meta(number) == {
            "image_id": str(number),
            "image": str(number),
            "split": "train",
            "captions": [
                {"caption_id": f"{number}#0", "text": f"one {number}"},
                {"caption_id": f"{number}#1", "text": "two"},
            ],
        }


def test_two_shards_of_a_process_share_the_model(tmp_path: Path) -> None:
    """The second begins when the first has its last images loading; its bytes are those of a shard made alone."""
    inside = threading.Lock()

    class Alone(NumberExtractor):
        def __call__(self, items: Sequence[Any]) -> list[npt.NDArray[np.float16]]:
            assert inside.acquire(blocking=False)
            time.sleep(0.01)
            try:
                return super().__call__(items)
            finally:
                inside.release()

    specs = [spec(tmp_path / name, [record(str(number)) for number in range(20)]) for name in ("a", "b", "c")]
    for each in specs:
        each.path.parent.mkdir()
    extractor, drawn = Alone(), threading.Event()
    first = threading.Thread(target=extract_shard, args=(specs[0], extractor, 4), kwargs={"drawn": drawn.set})
    first.start()
    assert drawn.wait(20)
    extract_shard(specs[1], extractor, 4)
    first.join()
    extract_shard(specs[2], NumberExtractor(), 4)
    assert len({each.path.read_bytes() for each in specs}) == 1


def test_nothing_disappears(tmp_path: Path) -> None:
    records = [
        record("0"),
        record("bad"),
        record("2", "", "something", " \t"),
        record("3", ""),
        Record("4", "/images/4", "train", ()),
        record("5"),
    ]
    extractor = NumberExtractor()
    index = extract_shard(spec(tmp_path, records), extractor, batch_size=2)
    assert index.keys == ["00000000", "00000002", "00000005"]
    assert index.caption_counts == [1, 1, 1]
    assert [(item["key"][-1], item["reason"], item.get("caption_id")) for item in index.skipped] == [
        ("1", "truncated", None),
        ("2", "empty caption", "2#0"),
        ("2", "empty caption", "2#2"),
        ("3", "empty caption", "3#0"),
        ("3", "no caption", None),
        ("4", "no caption", None),
    ]
    assert index.skipped[0] == {"key": "00000001", "image_id": "bad", "image": "bad", "reason": "truncated"}
    assert extractor.batches == [2, 1]
    assert extractor.loaded == 4  # images that nobody will read are not decoded


def test_text_that_no_file_can_hold_is_skipped(tmp_path: Path) -> None:
    records = [
        Record("0", "/images/0", "train", (Caption("0#0", "a \ud83d"), Caption("0#1", "a dog"))),
        Record("1\udcff", "/images/1", "train", (Caption("1#0", "a cat"),)),
        Record("2", "/images/\ud800", "train", (Caption("2#0", "a cat"),)),
        Record("3", "/images/3", "train", (Caption("3#\ud800", "a cat"),)),
    ]
    index = extract_shard(spec(tmp_path, records), NumberExtractor(), batch_size=2)
    assert index.keys == ["00000000"]
    assert ShardReader(tmp_path, "grid").meta(0)["captions"] == [{"caption_id": "0#1", "text": "a dog"}]
    assert [(item["image_id"], item["image"], item.get("caption_id")) for item in index.skipped] == [
        ("0", "0", "0#0"),
        ("1\\udcff", "1", None),
        ("2", "\\ud800", None),
        ("3", "3", "3#\\ud800"),
        ("3", "3", None),
    ]
    assert {item["reason"] for item in index.skipped} == {NOT_UTF8, NO_CAPTION}


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop", "file/inside", "\ud800"])
def test_names_that_no_image_has_are_skipped_where_it_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_bytes(b"x")
    uri = f"{tmp_path}/{name}"
    dataset = ListDataset([Record("1", uri, "train", (Caption("1#0", "a dog"),))], str(tmp_path))
    assert summarize(dataset, "train", 1).images == 1
    with pytest.raises(ImageError, match="cannot be read"):
        read_image_bytes(uri)


@pytest.mark.parametrize("threads", [1, 4])
def test_bytes_do_not_depend_on_threads(tmp_path: Path, threads: int) -> None:
    records = [record(str(number), *([""] * (number % 2)), "text") for number in range(50)]
    one, many = tmp_path / "one", tmp_path / "many"
    for folder, count in ((one, 1), (many, threads)):
        folder.mkdir()
        extract_shard(spec(folder, records), NumberExtractor(), batch_size=8, threads=count)
    for name in ("shard-00000.tar", "shard-00000.json"):
        assert (one / name).read_bytes() == (many / name).read_bytes()


def test_decoding_runs_ahead_of_the_model_by_a_bounded_number(tmp_path: Path) -> None:
    most = 0
    lock = threading.Lock()

    class Counting(NumberExtractor):
        def __call__(self, items: Sequence[Any]) -> list[npt.NDArray[np.float16]]:
            nonlocal most
            with lock:
                most = max(most, self.loaded - sum(self.batches))
            return super().__call__(items)

    extract_shard(spec(tmp_path, [record(str(number)) for number in range(100)]), Counting(), batch_size=4)
    assert most <= 4 + 2 * 4 + 1


def test_records_are_drawn_a_shard_at_a_time(tmp_path: Path) -> None:
    drawn = 0

    def endless() -> Iterator[Record]:
        nonlocal drawn
        while True:
            drawn += 1
            yield record("0")

    next(shard_specs(endless(), tmp_path, 3, "ab", ""))
    assert drawn == 3


def test_a_summary_counts_and_identifies(tmp_path: Path) -> None:
    """Oracle: the same lines hashed by hand."""
    import hashlib

    image = tmp_path / "0"
    image.write_bytes(b"12345")
    present = Record("0", str(image), "train", (Caption("0#0", "á"), Caption("0#1", "")))
    absent = Record("1", str(tmp_path / "1"), "train", ())
    summary = summarize(ListDataset([present, absent], root=str(tmp_path)), "train", 10)
    lines = [["0", "0", [5, xxhash.xxh3_128(b"12345").hexdigest()], [["0#0", "á"], ["0#1", ""]]], ["1", "1", None, []]]
    unstamped = [[*line[:2], line[3]] for line in lines]
    digest, of_records = (
        hashlib.sha256("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in each).encode()).hexdigest()
        for each in (lines, unstamped)
    )
    assert summary == SplitSummary(digest, 2, 2, (digest,), (of_records,))
    assert identity.records_digest([present, absent], str(tmp_path)) == of_records


def test_objects_are_listed_once_for_all_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Mock(list=Mock(return_value=[Entry("0", 5, "etag")]))
    monkeypatch.setattr(identity, "open_storage", lambda address: storage)
    records = [Record(name, f"s3://photos/all/{name}", "train", ()) for name in "01"]
    dataset = ListDataset(records, root="s3://photos/all")
    stamps = image_stamps(dataset)
    for _ in range(2):
        assert [entry[2] for entry in identity.entries(dataset, "train", stamps)] == [(5, "etag"), None]
    storage.list.assert_called_once_with()


def test_objects_of_a_data_set_without_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(address: str) -> Path:
        return tmp_path / address.removeprefix("s3://")

    monkeypatch.setattr(identity, "open_storage", lambda address: LocalStorage(here(address)))
    photographs = [f"s3://{bucket}/{name}" for bucket in ("one", "two") for name in ("a/0.jpg", "b/1.jpg")]
    for address in photographs:
        here(address).parent.mkdir(parents=True)
        here(address).write_bytes(b"1")
    addresses = [*photographs, "s3://one/a/missing.jpg"]
    records = [Record(each, each, "train", (Caption(f"{each}#0", "a"),)) for each in addresses]
    dataset = ListDataset(records, root="")
    before, digest = image_stamps(dataset)(addresses), summarize(dataset, "train", 10).digest
    assert [stamp is None for stamp in before] == [False] * 4 + [True]
    here("s3://two/a/0.jpg").write_bytes(b"12")
    after = image_stamps(dataset)(addresses)
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False, True, True]
    assert summarize(dataset, "train", 10).digest != digest
    assert next(shard_specs(records, tmp_path, 10, "fingerprint", root="")).is_on_s3


@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 7])
def test_appended_records_leave_the_shards_before_the_last_one(count: int) -> None:
    """Oracle: each shard's records summarised by themselves."""
    records = [record(str(number)) for number in range(9)]
    summary = summarize(ListDataset(records[:count]), "train", 3)
    alone = [summarize(ListDataset(records[first : min(first + 3, count)]), "train", 3) for first in range(0, count, 3)]
    assert summary.shards == tuple(each.digest for each in alone)
    grown = summarize(ListDataset(records), "train", 3)
    whole = count // 3
    assert grown.shards[:whole] == summary.shards[:whole]
    assert len(set(grown.shards)) == 3


def test_what_changes_a_summary(tmp_path: Path) -> None:
    image = tmp_path / "0"
    image.write_bytes(b"1")

    def digest(text: str = "a", image_id: str = "0", root: Path = tmp_path) -> str:
        entry = Record(image_id, str(root / "0"), "train", (Caption("0#0", text),))
        return summarize(ListDataset([entry], root=str(root)), "train", 10).digest

    first = digest()
    assert digest() == first
    assert len({first, digest(text="b"), digest(image_id="1")}) == 3
    moved = tmp_path / "moved"
    moved.mkdir()
    os.link(image, moved / "0")
    assert digest(root=moved) == first  # where the data lies does not matter
    os.utime(image, ns=(0, 1))
    assert digest() == first  # nor does when it was copied
    image.write_bytes(b"2")
    assert digest() != first


def test_rows_of_a_file_are_identified_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dev_ims.npy"
    np.save(path, np.zeros((2, 3), np.float32))
    records = [Record(str(row), f"{path}#{row}", "dev", (Caption(str(row), "a"),)) for row in range(2)]
    first = summarize(ListDataset(records, str(tmp_path)), "dev", 10).digest
    os.utime(path, ns=(0, 1))
    assert summarize(ListDataset(records, str(tmp_path)), "dev", 10).digest != first


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")])
def test_a_batch_for_which_memory_runs_out_is_named(tmp_path: Path, error: Exception) -> None:
    class Short(NumberExtractor):
        def __call__(self, items: Sequence[Any]) -> list[npt.NDArray[np.float16]]:
            if 2 in items:
                raise error
            return super().__call__(items)

    records = [record(str(number)) for number in range(5)]
    with pytest.raises(ExtractorError, match=r"2 images from .*/2 on: lower features.batch_size"):
        extract_shard(spec(tmp_path, records), Short(), batch_size=2)


def test_a_server_that_does_not_answer_is_no_fault_of_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads from S3 gives up by itself, later than an image may take."""

    class Slow(NumberExtractor):
        def load(self, uri: str) -> int:
            time.sleep(0.5)
            return super().load(uri)

    def of(root: str) -> ShardSpec:
        records = [Record(name, f"{root}/{name}", "train", (Caption(name, "a dog"),)) for name in "12"]
        return ShardSpec(tmp_path / "shard-00000.tar", "ab", "", 0, records)

    monkeypatch.setattr(s3, "patience", lambda: 60.0)
    assert extract_shard(of("/images"), Slow(), 2, timeout=0.1).count == 0
    assert extract_shard(of("s3://far"), Slow(), 2, timeout=0.1).count == 2


def test_an_image_that_is_loaded_alone_is_marked_on_the_storage(tmp_path: Path) -> None:
    """The process may die of it, on another machine than that of the driver."""
    mirror, marked = Mirror(tmp_path / "here", str(tmp_path / "storage")), []
    path = mirror.root / "train" / "shard-00000.tar"
    path.parent.mkdir(parents=True)
    spec = ShardSpec(path, "ab", "/images", 0, (record("1", "a dog"), record("2", "a cat")), one_by_one=True)

    class Looking(NumberExtractor):
        def load(self, uri: str) -> int:
            marked.append((mirror.read(spec.marker), spec.marker.read_bytes()))
            return super().load(uri)

    assert extract_shard(spec, Looking(), 2, mirror=mirror).count == 2
    assert marked == [(uri, uri) for uri in (os.fsencode(each.image_uri) for each in spec.records)]
    assert mirror.read(spec.marker) is None
    assert not spec.marker.exists()
