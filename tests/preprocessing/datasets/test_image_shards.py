"""WebDataset shards of images, as img2dataset writes them: read where they lie, damaged ones named."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import webdataset
from PIL import Image

from preprocessing.datasets import Caption, DatasetError, build_dataset, image_shards
from preprocessing.datasets.image_shards import TarMember
from preprocessing.extraction.identity import summarize
from preprocessing.features.images import ImageError, load_image, read_image_bytes
from preprocessing.storage.base import Entry
from preprocessing.storage.s3 import S3Storage


def jpeg(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 8), (level, 0, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def write(folder: Path) -> Path:
    """Two archives: images with a text, with a JSON alone, with neither, and a text without an image."""
    folder.mkdir()
    with webdataset.TarWriter(str(folder / "00000.tar")) as sink:
        meta = {"caption": "of the JSON", "url": "https://example.org/a.jpg"}
        sink.write({"__key__": "000000000", "jpg": jpeg(10), "txt": "A red wall", "json": meta})
        sink.write({"__key__": "000000001", "png": jpeg(20), "json": meta})
    with webdataset.TarWriter(str(folder / "00001.tar")) as sink:
        sink.write({"__key__": "000010000", "webp": jpeg(30), "json": {"caption": None}})
        sink.write({"__key__": "000010001", "txt": "lost"})
    return folder


def test_samples_become_records_that_are_read_where_they_lie(tmp_path: Path) -> None:
    dataset = build_dataset("webdataset", folders={"train": write(tmp_path / "train")})
    assert (dataset.splits, dataset.root) == (("train",), str(tmp_path / "train"))
    first, second, third, lost = dataset.records("train")
    assert (first.image_id, first.captions) == ("00000/000000000", (Caption("00000/000000000#0", "A red wall"),))
    assert [caption.text for caption in second.captions] == ["of the JSON"]
    assert (third.captions, [caption.text for caption in lost.captions]) == ((), ["lost"])
    assert [read_image_bytes(record.image_uri) for record in (first, second, third)] == [jpeg(10), jpeg(20), jpeg(30)]
    assert load_image(first.image_uri).size == (12, 8)
    with pytest.raises(ImageError, match="the archive has no image '000010001'"):
        load_image(lost.image_uri)


def test_archives_are_listed_and_not_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "train")
    (folder / "00001.tar").write_bytes(b"no archive at all")
    dataset = build_dataset("webdataset", folders={"train": folder})
    assert len(summarize(dataset, "train", 10).shards) == 2
    first, _ = dataset.archives("train")
    status = (folder / "00000.tar").stat()
    assert first.stamp == ("00000.tar", status.st_size, str(status.st_mtime_ns))
    assert [record.image_id for record in first] == ["00000/000000000", "00000/000000001"]


@pytest.mark.parametrize("name", ["a.jpg", "/x/b.tar", "/x/b.tar#c.jpg", "/x/b.tar#c.jpg@1", "/x/b.npy#3"])
def test_other_addresses_are_none(name: str) -> None:
    assert TarMember.parse(name) is None


def test_addresses_are_taken_apart_as_they_were_made() -> None:
    member = TarMember("/data/odd#name@3+4.tar", "in/a b#1@2+3.jpg", 512, 77)
    assert TarMember.parse(member.uri) == member


def test_an_archive_that_has_gone_or_was_cut_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "train")
    first, *_ = build_dataset("webdataset", folders={"train": folder}).records("train")
    (folder / "00000.tar").write_bytes((folder / "00000.tar").read_bytes()[:700])
    with pytest.raises(ImageError, match=r"00000\.tar ends before 000000000\.jpg does"):
        load_image(first.image_uri)
    (folder / "00000.tar").unlink()
    with pytest.raises(ImageError, match=r"no such archive: .*00000\.tar"):
        load_image(first.image_uri)


def pack(folder: Path, *files: tuple[str, bytes]) -> Path:
    """Write an archive of these files, in this order."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "00000.tar", "w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return folder


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("7.jpg", "7.txt", "8.jpg", "7.jpg"), "bytes 0 and 4608"),
        (("7.jpg", "7.txt", "7.jpg", "7.txt"), "bytes 0 and 3072"),
        (("7.jpg", "7.JPG"), "bytes 0 and 1536"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_both_places(
    tmp_path: Path, names: tuple[str, ...], places: str
) -> None:
    folder = pack(tmp_path / "train", *((name, b"x" * 1000) for name in names))
    with pytest.raises(DatasetError, match=rf"00000\.tar: two samples have the key '7', at {places} of the archive"):
        list(build_dataset("webdataset", folders={"train": folder}).records("train"))


@pytest.mark.parametrize(
    ("names", "both"),
    [
        (("trip.01.jpg", "trip.01.txt", "trip.02.jpg"), "trip.01.jpg and trip.02.jpg"),
        (("a.b.jpg", "a.b.txt", "a.c.jpg", "a.c.txt"), "a.b.jpg and a.c.jpg"),
        (("a.b.jpg", "a.b.txt", "a.c.png", "a.c.txt"), "a.b.txt and a.c.txt"),
    ],
)
def test_names_that_dots_make_one_sample_are_refused(tmp_path: Path, names: tuple[str, ...], both: str) -> None:
    """The second image had the caption of the first."""
    folder = pack(tmp_path / "train", *((name, b"x") for name in names))
    with pytest.raises(DatasetError, match=rf"00000\.tar: {both} are of one sample, as its key ends at the first dot"):
        list(build_dataset("webdataset", folders={"train": folder}).records("train"))


def test_further_files_of_a_sample_and_those_of_a_mac_are_passed_over(tmp_path: Path) -> None:
    names = ("._7.jpg", "7.a.png", "7.b.png", "7.a.jpg", "7.b.jpg", "7.jpg", "in/._7.txt", "._7.txt", "7.a.txt")
    folder = pack(tmp_path / "train", *((name, name.encode()) for name in names), ("7.TXT", "\ufeffa dög".encode()))
    (record,) = build_dataset("webdataset", folders={"train": folder}).records("train")
    assert read_image_bytes(record.image_uri) == b"7.jpg"
    assert record.captions == (Caption("00000/7#0", "a dög"),)


@pytest.mark.parametrize("name", ["../7.jpg", "/etc/7.jpg", "C:\\7.jpg", "a/../../7.jpg"])
def test_a_name_that_leads_out_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = pack(tmp_path / "train", (name, jpeg(1)))
    with pytest.raises(DatasetError, match=r"00000\.tar: the name .* is not a path inside its folder"):
        list(build_dataset("webdataset", folders={"train": folder}).records("train"))


def test_an_archive_that_is_a_link_out_of_its_folder_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "00000.tar").symlink_to(tmp_path / "elsewhere" / "00000.tar")
    with pytest.raises(DatasetError, match=r"00000\.tar is a link that leads out of its folder"):
        list(build_dataset("webdataset", folders={"train": tmp_path / "train"}).records("train"))


def test_damage_is_named_by_archive_and_sample(tmp_path: Path) -> None:
    folder = write(tmp_path / "train")
    (folder / "00002.tar").write_bytes(b"no archive at all" * 100)
    with pytest.raises(DatasetError, match=r"00002\.tar: not a complete tar archive"):
        list(build_dataset("webdataset", folders={"train": folder}).records("train"))
    with tarfile.open(folder / "00002.tar", "w") as archive:
        info = tarfile.TarInfo("7.json")
        info.size = len(text := json.dumps(["no", "object"]).encode())
        archive.addfile(info, io.BytesIO(text))
    with pytest.raises(DatasetError, match=r"00002\.tar, 7: its caption cannot be read"):
        list(build_dataset("webdataset", folders={"train": folder}).records("train"))


def test_a_caption_that_is_not_utf_8_does_not_end_the_archive(tmp_path: Path) -> None:
    """It holds halves of characters, with which the extraction skips it."""
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        for name, content in (("0.jpg", b"x"), ("0.txt", b"a caf\xe9"), ("1.jpg", b"x"), ("1.txt", b"a dog")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    records = build_dataset("webdataset", folders={"train": tmp_path}).records("train")
    assert [record.captions[0].text for record in records] == ["a caf\udce9", "a dog"]


def test_a_number_that_is_missing_does_not_end_the_archive(tmp_path: Path) -> None:
    """As in the metadata of LAION."""
    pack(tmp_path, ("0.jpg", b"x"), ("0.json", b'{"caption": "a dog", "punsafe": NaN, "pwatermark": 1e999}'))
    (record,) = build_dataset("webdataset", folders={"train": tmp_path}).records("train")
    assert record.captions[0].text == "a dog"


def test_folders_without_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"'folders\.train': .* holds no \*\.tar"):
        build_dataset("webdataset", folders={"train": tmp_path})


def test_archives_on_s3_are_known_by_name_size_and_etag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: no archive is opened, and a change of any of the three is another shard, that one alone."""
    listed = [Entry("00000.tar", 60, "aa"), Entry("00000_stats.json", 9, "ab"), Entry("00001.tar", 60, "ac")]
    monkeypatch.setattr(S3Storage, "list", lambda _: iter(listed))
    monkeypatch.setattr(image_shards, "open_address", lambda path: pytest.fail(f"{path} was opened"))
    dataset = build_dataset("webdataset", folders={"train": "s3://bucket/train"})
    before = summarize(dataset, "train", 10)
    assert summarize(dataset, "train", 10) == before
    for changed in (Entry("00001.tar", 60, "ad"), Entry("00001.tar", 61, "ac"), Entry("00002.tar", 60, "ac")):
        listed[2] = changed
        after = summarize(dataset, "train", 10)
        assert after.digest != before.digest
        assert [now == then for now, then in zip(after.shards, before.shards, strict=True)] == [True, False]
