"""S3 against a real server: what is stored is what was sent, and every failure is repaired or said in one message."""

from __future__ import annotations

import os
import random
import socket
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
import webdataset

from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.extraction.identity import relative_uri, summarize
from preprocessing.features.images import ImageError, read_image_bytes
from preprocessing.storage import lease, s3
from preprocessing.storage.base import BusyError, StorageError
from preprocessing.storage.lease import Lease, held
from preprocessing.storage.s3 import S3Storage
from tests.integration import faults
from tests.integration.fault_cases import ACTIONS, CASES, IN_PARTS, LARGE, SMALL, Case
from tests.integration.servers_of_s3 import ACCESS_KEY, S3Server, on_swift

pytestmark = pytest.mark.usefixtures("s3_client")


@pytest.fixture
def storage(bucket: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    """A folder of the test's own that holds one object, in a bucket, with the smallest parts that S3 takes."""
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    folder = S3Storage(f"{bucket}/{zlib.crc32(request.node.name.encode())}")
    (tmp_path / "original").write_bytes(SMALL)
    folder.upload(tmp_path / "original", "small")
    return folder


def test_objects_are_what_was_stored(storage: S3Storage, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    storage.upload(tmp_path / "large", "deep/er/large")
    (tmp_path / "empty").write_bytes(b"")
    storage.upload(tmp_path / "empty", "deep/empty")
    assert [(entry.name, entry.bytes) for entry in storage.list()] == [
        ("deep/empty", 0),
        ("deep/er/large", len(LARGE)),
        ("small", len(SMALL)),
    ]
    assert [entry.name for entry in storage.list("deep")] == ["deep/empty", "deep/er/large"]
    assert [entry.name for entry in storage.list("dee")] == []
    assert storage.read("deep/er/large") == LARGE
    assert storage.read("deep/empty") == b""
    storage.download("deep/er/large", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == LARGE
    assert storage.read("small", Range="bytes=100-149") == SMALL[100:150]
    assert storage.read("small", Range=f"bytes={len(SMALL) - 5}-{len(SMALL) + 44}") == SMALL[-5:]
    found = storage.find("small")
    assert found is not None
    assert found.bytes == len(SMALL)
    storage.delete("small")
    storage.delete("small")
    assert storage.find("small") is None
    with pytest.raises(FileNotFoundError, match="there is no object s3://"):
        storage.read("small")


def test_one_holds_a_lease(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server without conditional writes, whose clock knows whole seconds: a lease is renewed every second."""
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.1)

    lost: list[str] = []
    with held(Lease(storage, "work.lock", 6.0), lambda: lost.append("the first")):
        written = storage.read("work.lock")
        while storage.read("work.lock") == written:
            time.sleep(0.05)
        with pytest.raises(BusyError, match=f"process {os.getpid()} on "), held(Lease(storage, "work.lock", 6.0), list):
            raise AssertionError("two hold it")
    assert storage.find("work.lock") is None
    assert not lost


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.failure}, {case.action}")
def test_failures(
    case: Case,
    storage: S3Storage,
    proxy: faults.FaultyProxy,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if s3_server.kind == "moto" and not case.is_found_by_moto:
        pytest.skip("Moto does not compare it")
    if case.fault["kind"] == "slow":
        monkeypatch.setattr(s3, "_READ_SECONDS", faults.SLOW_SECONDS / 2)
    s3.client.cache_clear()
    proxy.inject(faults.Fault(**case.fault))
    action = ACTIONS[case.action]
    if case.message:
        with pytest.raises(StorageError, match=case.message):
            action(storage, tmp_path)
        assert not (tmp_path / "copy").exists()
    else:
        assert action(storage, tmp_path) == (LARGE if case.action in IN_PARTS else SMALL)
        assert proxy.happened.total() == case.fault.get("times", 1)


def test_a_part_that_was_cut_is_asked_for_again(storage: S3Storage, proxy: faults.FaultyProxy, tmp_path: Path) -> None:
    """The others are not."""
    ranges: list[str] = []
    (tmp_path / "large").write_bytes(LARGE)
    storage.upload(tmp_path / "large", "large")
    proxy.inject(faults.Fault("cut", after=1))

    def note(request: Any, **_: Any) -> None:
        ranges.append(request.headers["Range"].decode())

    s3.client.cache_clear()
    s3.client().meta.events.register("before-send.s3.GetObject", note)
    storage.download("large", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == LARGE
    first, second, third = ranges
    assert first.startswith("bytes=0-")
    assert second == third == f"bytes={5 << 20}-"


@on_swift
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        # Swift answers both alike; AWS says of an unknown key that it is unknown.
        ({"AWS_ACCESS_KEY_ID": "test:nobody", "AWS_SECRET_ACCESS_KEY": "x"}, "the access key or its secret is wrong"),
        (
            {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": "x"},
            "the access key or its secret is wrong",
        ),
        ({"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}, "there are no credentials"),
    ],
    ids=["unknown key", "wrong secret", "none"],
)
def test_credentials(
    storage: S3Storage,
    proxy: faults.FaultyProxy,
    settings: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3.client.cache_clear()
    with pytest.raises(StorageError, match=message):
        storage.read("small")


def test_missing_bucket_and_server(storage: S3Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for action in (S3Storage("s3://no-such-bucket").read, lambda name: list(S3Storage("s3://no-such-bucket").list())):
        with pytest.raises(StorageError, match=r"NoSuchBucket.*create it, or correct the address"):
            action("small")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        s3.client.cache_clear()
        with pytest.raises(StorageError, match="check that the server is there"):
            storage.read("small")


def test_images(storage: S3Storage, proxy: faults.FaultyProxy) -> None:
    assert read_image_bytes(f"{storage.address}/small") == SMALL
    with pytest.raises(ImageError, match="no such object"):
        read_image_bytes(f"{storage.address}/none")
    proxy.inject(faults.Fault("error:403:InvalidObjectState", times=1))
    with pytest.raises(ImageError, match="it is in an archive: restore it there first"):
        read_image_bytes(f"{storage.address}/small")
    proxy.inject(faults.Fault("error:403:ExpiredToken", times=100))
    with pytest.raises(StorageError, match="get new credentials"):  # no fault of the image: it is not skipped
        read_image_bytes(f"{storage.address}/small")


def test_archives_of_images_are_read_where_they_lie(
    storage: S3Storage, proxy: faults.FaultyProxy, tmp_path: Path
) -> None:
    """Shards as img2dataset writes them, larger than a block of what is asked for at once: the same as from a disk."""
    (tmp_path / "train").mkdir()
    pictures = [random.Random(number).randbytes(400_000) for number in range(8)]
    for shard in range(2):
        with webdataset.TarWriter(str(tmp_path / "train" / f"{shard:05d}.tar")) as sink:
            for number in range(4 * shard, 4 * shard + 4):
                sink.write({"__key__": f"{number:09d}", "jpg": pictures[number], "txt": f"picture {number}"})
        storage.upload(tmp_path / "train" / f"{shard:05d}.tar", f"train/{shard:05d}.tar")
    (tmp_path / "other").write_text("{}")
    storage.upload(tmp_path / "other", "train/00000_stats.json")
    local = build_dataset("webdataset", folders={"train": tmp_path / "train"})
    remote = build_dataset("webdataset", folders={"train": f"{storage.address}/train"})
    proxy.inject(faults.Fault("reset", times=2, after=2, holds=lambda path: ".tar" in path))
    here, there = list(local.records("train")), list(remote.records("train"))
    assert proxy.happened["reset"] == 2
    assert [(r.image_id, r.captions) for r in there] == [(r.image_id, r.captions) for r in here]
    assert [relative_uri(r.image_uri, remote.root) for r in there] == [
        relative_uri(r.image_uri, local.root) for r in here
    ]
    assert [read_image_bytes(record.image_uri) for record in there] == pictures
    before = summarize(remote, "train", 10)
    storage.upload(tmp_path / "train" / "00000.tar", "train/00001.tar")
    assert summarize(remote, "train", 10).digest != before.digest
    (tmp_path / "cut").write_bytes((tmp_path / "train" / "00001.tar").read_bytes()[:500_000])
    storage.upload(tmp_path / "cut", "train/00001.tar")
    with pytest.raises(DatasetError, match=r"00001.tar: not a complete tar archive"):
        list(remote.records("train"))
    with pytest.raises(ImageError, match="ends before"):
        read_image_bytes(there[-1].image_uri)
    with pytest.raises(DatasetError, match="nothing lies under s3://"):
        build_dataset("webdataset", folders={"train": f"{storage.address}/none"})


def test_a_table_names_images_relative_to_it(storage: S3Storage) -> None:
    storage.write("data/train.csv", b"image;caption\nphotos/a b.jpg;a dog\nphotos/a b.jpg;a hound\n")
    storage.write("data/dev.jsonl", b'{"image": "photos/c.jpg", "caption": "a cat"}\n')
    storage.write("data/photos/a b.jpg", SMALL)
    folder = f"{storage.address}/data"
    dataset = build_dataset("table", tables={"train": f"{folder}/train.csv", "dev": f"{folder}/dev.jsonl"})
    records = [*dataset.records("train"), *dataset.records("dev")]
    texts = {record.image_uri: [caption.text for caption in record.captions] for record in records}
    assert texts == {f"{folder}/photos/a b.jpg": ["a dog", "a hound"], f"{folder}/photos/c.jpg": ["a cat"]}
    assert read_image_bytes(f"{folder}/photos/a b.jpg") == SMALL


def test_an_aborted_upload_leaves_nothing(storage: S3Storage, proxy: faults.FaultyProxy, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    proxy.inject(faults.Fault("error:403:AccessDenied", method="PUT", after=1, times=100))
    with pytest.raises(StorageError, match="ask for the permissions"):
        storage.upload(tmp_path / "large", "large")
    assert storage.find("large") is None
    uploads: list[Any] = s3.client().list_multipart_uploads(Bucket="vse").get("Uploads", [])
    assert [each["Key"] for each in uploads if "large" in each["Key"]] == []
