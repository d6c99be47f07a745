"""The Karpathy JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from preprocessing.datasets import Caption, DatasetError, build_dataset


def image(number: int, split: str, sentences: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "filename": f"{number}.jpg",
        "imgid": number,
        "split": split,
        "sentences": [
            {"raw": f"Caption {k} of {number}.", "tokens": ["x"], "imgid": number, "sentid": number * 10 + k}
            for k in range(sentences)
        ],
    } | more


def build(folder: Path, images: Any, **options: Any) -> Any:
    path = folder / "dataset.json"
    path.write_text(json.dumps({"images": images, "dataset": "test"}))
    return build_dataset("karpathy", images=folder, annotations=path, **options)


def instances(folder: Path, name: str, labels: list[tuple[int, int]]) -> Path:
    """Write labels, as pairs of image and category."""
    annotations = [{"image_id": image_id, "category_id": category} for image_id, category in labels]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "hot dog"}]
    path = folder / name
    path.write_text(json.dumps({"categories": categories, "annotations": annotations}))
    return path


def test_labels_are_found_by_coco_s_ids_in_several_files(tmp_path: Path) -> None:
    images = [image(0, "test", cocoid=500), image(1, "test", cocoid=7), image(2, "test", cocoid=8)]
    files = [
        instances(tmp_path, "train.json", [(8, 1), (0, 1)]),
        instances(tmp_path, "val.json", [(500, 2), (500, 1), (500, 2)]),
    ]
    dataset = build(tmp_path, [*images, image(3, "val", cocoid=9)], instances=files)
    assert dataset.detections("test") == {"8": ["cat"], "500": ["hot dog", "cat"]}
    with pytest.raises(DatasetError, match=r"no image of 'dev' is labelled in .*val\.json; name the files"):
        dataset.detections("dev")
    assert build(tmp_path, images).detections("test") is None


def test_labels_without_coco_s_ids_are_refused(tmp_path: Path) -> None:
    """Flickr8k's numbers are not COCO's, but would fit."""
    labels = [instances(tmp_path, "val.json", [(0, 1)])]
    with pytest.raises(DatasetError, match=r"images\[0\]: has no 'cocoid'"):
        build(tmp_path, [image(0, "test")], instances=labels).detections("test")


def test_restval_goes_into_train_and_val_is_called_dev(tmp_path: Path) -> None:
    splits = ["train", "val", "restval", "test", "train"]
    dataset = build(tmp_path, [image(number, split) for number, split in enumerate(splits)])
    assert dataset.splits == ("train", "dev", "test")
    ids = {split: [record.image_id for record in dataset.records(split)] for split in dataset.splits}
    assert ids == {"train": ["0", "2", "4"], "dev": ["1"], "test": ["3"]}
    assert {record.split for record in dataset.records("dev")} == {"dev"}
    without = build(tmp_path, [image(number, split) for number, split in enumerate(splits)], restval=False)
    assert [record.image_id for record in without.records("train")] == ["0", "4"]


def test_first_five_raw_sentences_are_kept(tmp_path: Path) -> None:
    dataset = build(tmp_path, [image(3, "train", sentences=7), image(4, "train", sentences=2)])
    seven, two = dataset.records("train")
    assert seven.captions == tuple(Caption(str(30 + k), f"Caption {k} of 3.") for k in range(5))
    assert len(two.captions) == 2


def test_coco_entries_have_their_own_ids_and_folders(tmp_path: Path) -> None:
    dataset = build(tmp_path, [image(0, "val", cocoid=391895, filepath="val2014")])
    (record,) = dataset.records("dev")
    assert record.image_id == "391895"
    assert record.image_uri == str(tmp_path / "val2014" / "0.jpg")
    assert dataset.root == str(tmp_path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([image(0, "train"), image(1, "valid")], r"images\[1\]: split 'valid', expected one of"),
        ([image(0, "train"), image(0, "test")], r"images\[1\]: image id 0 is there already, in .*images\[0\];"),
        (
            [image(0, "train"), image(1, "test") | {"sentences": [{"sentid": 2, "raw": "x"}]}],
            r"images\[1\]\.sentences\[0\]: sentid 2 is there already, in .*images\[0\]\.sentences\[2\];",
        ),
        (
            [image(0, "train") | {"sentences": [{"sentid": 1, "raw": "x"}, {"sentid": 1, "raw": "y"}]}],
            r"images\[0\]\.sentences\[1\]: sentid 1 is there already, in .*images\[0\]\.sentences\[0\];",
        ),
        ([{"split": "train"}], r"images\[0\]: the field 'imgid' is missing"),
        ([image(0, "train", filename=7)], r"images\[0\]: the field 'filename' holds 7"),
        (
            [image(0, "train") | {"sentences": [{"sentid": 1}]}],
            r"images\[0\]\.sentences\[0\]: the field 'raw' is missing",
        ),
        ([image(0, "train", filename="/etc/passwd")], r"image: the name '/etc/passwd' is not a path inside"),
        ([7], r"images\[0\]: int where an object is needed"),
        ([], "'images' is empty"),
        ({}, "the field 'images' holds"),
    ],
)
def test_malformed_entries_are_named(tmp_path: Path, images: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        list(build(tmp_path, images).records("train"))
