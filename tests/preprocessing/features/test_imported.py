"""Published features as an extractor, joined with a data set by the names of the images."""

import base64
import os
from pathlib import Path

import numpy as np
import pytest

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.precomputed import check_image_names, image_key


def test_the_keys_of_images() -> None:
    same = ["42", "000000000042", "COCO_val2014_000000000042", "COCO_train2014_000000000042.jpg", "a/b/42.jpg"]
    assert {image_key(name) for name in same} == {"42"}
    assert image_key("1000268201_693b08cb0e.jpg") == "1000268201_693b08cb0e"
    assert image_key("0") == image_key("000.jpg") == "0"


def row(name: str, features: np.ndarray) -> str:
    """A line of the Caffe code's TSV."""
    arrays = np.ones((len(features), 4), np.float32), features.astype(np.float32)
    texts = [base64.b64encode(array.tobytes()).decode() for array in arrays]
    return "\t".join([name, "640", "480", str(len(features)), *texts]) + "\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "features.tsv"
    rows = [row(f"COCO_val2014_{number:012d}.jpg", np.full((number + 1, 4), number)) for number in (1, 2, 3)]
    path.write_text("".join([*rows, "000000000004\tcut short\n"]))
    return path


def test_features_come_by_the_name_of_the_image(source: Path) -> None:
    extractor = build_extractor("imported", source=str(source), form="butd_tsv")
    assert extractor.name == "region"
    items = [extractor.load(f"/photographs/{number:012d}.jpg") for number in (3, 1)]
    for number, found in zip((3, 1), extractor(items), strict=True):
        assert found.features.tolist() == [[number] * 4] * (number + 1)
        assert found.companions["boxes"].shape == (number + 1, 4)
    with pytest.raises(ImageError, match=r"^no features of this image in the source$"):
        extractor.load("/photographs/000000000005.jpg")
    with pytest.raises(ImageError, match="the line may be cut short"):
        extractor.load("/photographs/000000000004.jpg")


def test_the_identity_is_that_of_the_file(source: Path) -> None:
    first = build_extractor("imported", source=str(source)).identity()
    assert build_extractor("imported", source=str(source)).identity() == first
    os.utime(source, ns=(1, 1))
    assert build_extractor("imported", source=str(source)).identity() != first


def test_a_source_is_opened_when_it_is_asked_for(tmp_path: Path) -> None:
    extractor = build_extractor("imported", source=str(tmp_path / "gone.tsv"))
    for ask in (extractor.identity, lambda: extractor.load("42.jpg")):
        with pytest.raises(ExtractorError, match=r"published features: .*gone\.tsv is not a file"):
            ask()
    with pytest.raises(ExtractorError, match="the form npz are not read any more: convert to butd_tsv"):
        build_extractor("imported", source=str(tmp_path), form="npz")


def test_the_last_of_two_rows_counts(tmp_path: Path) -> None:
    """A writer that was killed leaves a row cut short, and the next one writes that image again."""
    path = tmp_path / "features.tsv"
    path.write_text("42\t640\t480\t2\n" + row("42", np.ones((2, 3))))
    assert build_extractor("imported", source=str(path)).load("42.jpg").features.shape == (2, 3)


@pytest.mark.parametrize(("one", "other"), [("cats/1", "dogs/1"), ("007", "7"), ("1.jpg", "COCO_val2014_000000000001")])
def test_two_rows_of_one_image_are_an_error(tmp_path: Path, one: str, other: str) -> None:
    """The last of them would have been the features of both images."""
    path = tmp_path / "features.tsv"
    path.write_text(row(one, np.zeros((2, 3))) + row(other, np.ones((2, 3))))
    extractor = build_extractor("imported", source=str(path))
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
