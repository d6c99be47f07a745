"""Published features as an extractor, joined with a data set by the names of the images."""

import base64
import os
from pathlib import Path

import numpy as np
import pytest

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.imported import check_image_names
from preprocessing.features.importers.source import image_key


def test_the_keys_of_images() -> None:
    same = ["42", "000000000042", "COCO_val2014_000000000042", "COCO_train2014_000000000042.jpg", "a/b/42.jpg.npz"]
    assert {image_key(name) for name in same} == {"42"}
    assert image_key("1000268201_693b08cb0e.jpg") == "1000268201_693b08cb0e"
    assert image_key("/videos/video7.mp4") == "video7"
    assert image_key("0") == image_key("000.jpg") == "0"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number in (1, 2, 3):
        rows = number + 1
        features = np.full((rows, 4), number, np.float32)
        np.savez(folder / f"COCO_val2014_{number:012d}.npz", x=features, bbox=np.ones((rows, 4)))
    (folder / "000000000004.npz").write_bytes(b"PK")
    return folder


def test_features_come_by_the_name_of_the_image(source: Path) -> None:
    extractor = build_extractor("imported", source=str(source), form="npz")
    assert extractor.name == "region"
    items = [extractor.load(f"/photographs/{number:012d}.jpg") for number in (3, 1)]
    for number, found in zip((3, 1), extractor(items), strict=True):
        assert found.features.tolist() == [[number] * 4] * (number + 1)
        assert found.companions["boxes"].shape == (number + 1, 4)
    with pytest.raises(ImageError, match=r"^no features of this image in the source$"):
        extractor.load("/photographs/000000000005.jpg")
    with pytest.raises(ImageError, match="not a readable npz file"):
        extractor.load("/photographs/000000000004.jpg")


def test_all_images_of_a_source_are_of_one_kind(tmp_path: Path) -> None:
    """A shard's samples all have the same members: what the first readable image has is what counts."""
    (tmp_path / "0.npz").write_bytes(b"PK")
    boxes = np.ones((2, 4), np.float32)
    np.savez(tmp_path / "1.npz", x=np.ones((2, 3), np.float32), bbox=boxes)
    np.savez(tmp_path / "2.npz", x=np.ones((2, 3), np.float32))
    with_boxes = build_extractor("imported", source=str(tmp_path), form="npz")
    assert set(with_boxes.load("1.jpg").companions) == {"boxes"}
    with pytest.raises(ImageError, match=r"^no boxes, which the other images of the source have$"):
        with_boxes.load("2.jpg")
    np.savez(tmp_path / "0.npz", x=np.ones((2, 3), np.float32))
    without = build_extractor("imported", source=str(tmp_path), form="npz")
    assert [set(without.load(f"{number}.jpg").companions) for number in (0, 1, 2)] == [set(), set(), set()]


def test_the_identity_is_that_of_the_files(source: Path) -> None:
    first = build_extractor("imported", source=str(source), form="npz").identity()
    assert build_extractor("imported", source=str(source), form="npz").identity() == first
    os.utime(source / "000000000004.npz", ns=(1, 1))
    assert build_extractor("imported", source=str(source), form="npz").identity() != first


def test_a_source_is_opened_when_it_is_asked_for(tmp_path: Path) -> None:
    extractor = build_extractor("imported", source=str(tmp_path / "gone.tsv"), form="butd_tsv")
    for ask in (extractor.identity, lambda: extractor.load("42.jpg")):
        with pytest.raises(ExtractorError, match="published features: there is no"):
            ask()


def test_the_last_of_two_rows_counts(tmp_path: Path) -> None:
    """A writer that was killed leaves a row cut short, and the next one writes that image again."""
    boxes, features = (base64.b64encode(np.ones(size, "<f4").tobytes()).decode() for size in (8, 6))
    row = ["42", "640", "480", "2", boxes, features]
    path = tmp_path / "features.tsv"
    path.write_text("\t".join(row[:4]) + "\n" + "\t".join(row) + "\n")
    assert build_extractor("imported", source=str(path), form="butd_tsv").load("42.jpg").features.shape == (2, 3)


@pytest.mark.parametrize(("one", "other"), [("cats/1", "dogs/1"), ("007", "7"), ("1.jpg", "COCO_val2014_000000000001")])
def test_two_files_of_one_image_are_an_error(tmp_path: Path, one: str, other: str) -> None:
    """The last of them would have been the features of both images."""
    for value, name in enumerate((one, other)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f"{name}.npz", x=np.full((2, 3), value, np.float32))
    extractor = build_extractor("imported", source=str(tmp_path), form="npz")
    for ask in (extractor.identity, lambda: extractor.load("cats/1.jpg")):
        with pytest.raises(ExtractorError, match=f"{one} and {other} count as one image.*: rename one of them"):
            ask()


def test_two_images_of_one_file_are_an_error() -> None:
    uris = ["/photographs/cats/1.jpg", "/photographs/cats/2.jpg", "/photographs/dogs/1.jpg"]
    with pytest.raises(ExtractorError, match=r"data set: /photographs/cats/1\.jpg and /photographs/dogs/1\.jpg count"):
        check_image_names(uris)
    with pytest.raises(ExtractorError, match=r"/a/7\.jpg and /shards/1\.tar#007\.jpg@512\+9 count as one image"):
        check_image_names(["/a/7.jpg", "/shards/1.tar#007.jpg@512+9"])
    check_image_names([*uris[:2], uris[0]])
