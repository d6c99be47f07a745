"""The Flickr token file and its split lists, on fixtures and on the real Flickr8k."""

from pathlib import Path

import pytest

from preprocessing.datasets import Caption, DatasetError, Record, build_dataset

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA  dog\truns .\n\nb.jpg.1#0\tÜber Ähren\nc.jpg#0\t\n"


def write(folder: Path, tokens: str = TOKENS, names: str = "a.jpg\n\nb.jpg.1\n") -> dict[str, object]:
    images = folder / "images"
    images.mkdir(exist_ok=True)
    (folder / "tokens.txt").write_text(tokens, encoding="utf-8")
    (folder / "train.txt").write_text(names, encoding="utf-8")
    return {"images": images, "tokens": folder / "tokens.txt", "splits": {"train": folder / "train.txt"}}


def test_yields_captions_untouched_in_the_order_of_the_list(tmp_path: Path) -> None:
    dataset = build_dataset("flickr", **write(tmp_path, names="b.jpg.1\n\na.jpg\n"))
    images = str(tmp_path / "images")
    assert dataset.splits == ("train",)
    assert dataset.root == images
    assert list(dataset.records("train")) == [
        Record("b.jpg.1", f"{images}/b.jpg.1", "train", (Caption("b.jpg.1#0", "Über Ähren"),)),
        Record(
            "a.jpg", f"{images}/a.jpg", "train", (Caption("a.jpg#0", "A dog ."), Caption("a.jpg#1", "A  dog\truns ."))
        ),
    ]


def test_a_list_may_leave_out_the_ending(tmp_path: Path) -> None:
    (record,) = build_dataset("flickr", **write(tmp_path, names="a\n")).records("train")
    assert record.image_id == "a.jpg"
    assert len(record.captions) == 2


def test_an_image_without_captions_is_yielded_with_none(tmp_path: Path) -> None:
    records = list(build_dataset("flickr", **write(tmp_path, names="a.jpg\nlost.jpg\n")).records("train"))
    assert [(record.image_id, len(record.captions)) for record in records] == [("a.jpg", 2), ("lost.jpg", 0)]


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    options = write(tmp_path)
    (tmp_path / "tokens.txt").write_bytes(b"\xef\xbb\xbfa.jpg#0\tA dog .\r\n")
    (tmp_path / "train.txt").write_bytes(b"\xef\xbb\xbfa.jpg\r\n")
    (record,) = build_dataset("flickr", **options).records("train")
    assert record.captions == (Caption("a.jpg#0", "A dog ."),)


@pytest.mark.parametrize(
    ("tokens", "names", "message"),
    [
        ("a.jpg#0\tx\na.jpg#1 no tab\n", "a.jpg\n", r"tokens\.txt:2: expected NAME\.jpg#N<TAB>caption"),
        ("\n\na.jpg\tx\n", "a.jpg\n", r"tokens\.txt:3: expected"),
        ("a.jpg#one\tx\n", "a.jpg\n", r"tokens\.txt:1: expected"),
        ("#0\tx\n", "a.jpg\n", r"tokens\.txt:1: expected"),
        (
            "a.jpg#0\tx\na.jpg#0\ty\n",
            "a.jpg\n",
            r"tokens\.txt:2: caption a\.jpg#0 is there already, in .*tokens\.txt:1; remove",
        ),
        ("\n", "a.jpg\n", r"tokens\.txt: no captions"),
        (TOKENS, "a.jpg\n\na.jpg\n", r"train\.txt:3: image a\.jpg is there already, in .*train\.txt:1;"),
        (TOKENS, "a\na.jpg\n", r"train\.txt:2: image a\.jpg is there already"),
        (TOKENS, "\n", r"train\.txt: the list of split 'train' names no image"),
        (TOKENS, "x.jpg\n", r"none of its 1 images has a caption"),
        (" a.jpg#0\tx\n", " a.jpg\n../secret.jpg\n", r"image: the name '\.\./secret\.jpg' is not a path inside"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path: Path, tokens: str, names: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        list(build_dataset("flickr", **write(tmp_path, tokens, names)).records("train"))


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    options = write(tmp_path)
    (tmp_path / "tokens.txt").write_bytes(b"a.jpg#0\tfine\na.jpg#1\tcaf\xe9\n")
    with pytest.raises(DatasetError, match=r"tokens\.txt:2: not utf-8"):
        list(build_dataset("flickr", **options).records("train"))


@pytest.mark.parametrize("missing", ["images", "tokens", "splits"])
def test_missing_paths_fail_at_construction(tmp_path: Path, missing: str) -> None:
    options = write(tmp_path)
    gone = tmp_path / "gone"
    options[missing] = {"train": gone} if missing == "splits" else gone
    with pytest.raises(DatasetError, match=rf"'{missing}.*there is no .*{gone}"):
        build_dataset("flickr", **options)
    with pytest.raises(DatasetError, match="is a folder, a file is needed"):
        build_dataset("flickr", **write(tmp_path) | {"tokens": tmp_path})


def test_real_flickr8k(vse_data: Path) -> None:
    folder = vse_data / "flickr8k"
    lists = {"train": folder / "Flickr_8k.trainImages.txt", "dev": folder / "Flickr_8k.devImages.txt"}
    dataset = build_dataset("flickr", images=folder / "images", tokens=folder / "Flickr8k.token.txt", splits=lists)
    for split, count in (("train", 6000), ("dev", 1000)):
        records = list(dataset.records(split))
        assert [record.image_id for record in records] == lists[split].read_text().split()
        assert len(records) == count
        assert all(len(record.captions) == 5 for record in records)
        assert all(Path(record.image_uri).is_file() for record in records)
    first = next(dataset.records("train"))
    assert first.captions[0].text == "A black dog is running after a white dog in the snow ."
