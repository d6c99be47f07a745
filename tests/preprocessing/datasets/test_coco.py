"""COCO's captions JSON, on fixtures and on real COCO entries."""

import json
from pathlib import Path
from typing import Any

import pytest

from preprocessing.datasets import Caption, DatasetError, build_dataset

IMAGES = [{"id": 9, "file_name": "nine.jpg"}, {"id": 3, "file_name": "three.jpg"}, {"id": 5, "file_name": "five.jpg"}]
ANNOTATIONS = [
    {"id": 100, "image_id": 3, "caption": "A cat. "},
    {"id": 90, "image_id": 9, "caption": "A dog."},
    {"id": 80, "image_id": 3, "caption": "The cat\n"},
]


def build(folder: Path, content: Any) -> Any:
    (folder / "train2017").mkdir(exist_ok=True)
    path = folder / "captions.json"
    path.write_text(json.dumps(content))
    return build_dataset("coco", images={"train": folder / "train2017"}, annotations={"train": path})


def test_images_and_captions_in_file_order_with_their_own_ids(tmp_path: Path) -> None:
    dataset = build(tmp_path, {"images": IMAGES, "annotations": ANNOTATIONS})
    nine, three, five = dataset.records("train")
    assert (nine.image_id, three.image_id, five.image_id) == ("9", "3", "5")
    assert nine.captions == (Caption("90", "A dog."),)
    assert three.captions == (Caption("100", "A cat. "), Caption("80", "The cat\n"))
    assert five.captions == ()
    assert three.image_uri == str(tmp_path / "train2017" / "three.jpg")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"images": IMAGES}, "the field 'annotations' is missing"),
        ({"images": [], "annotations": []}, "'images' is empty"),
        ({"images": IMAGES, "annotations": []}, "'annotations' is empty: none of its 3 images has a caption"),
        ({"images": IMAGES + IMAGES[:1], "annotations": []}, r"images\[3\]: image id 9 is there already"),
        ({"images": IMAGES, "annotations": [{"id": 1, "image_id": 4, "caption": "x"}]}, r"\[0\]: image_id 4 is not in"),
        ({"images": IMAGES, "annotations": ANNOTATIONS * 2}, r"annotations\[3\]: caption id 100 is there already"),
        ({"images": IMAGES, "annotations": [{"id": 1, "image_id": 3}]}, r"\[0\]: the field 'caption' is missing"),
        ({"images": [{"id": True, "file_name": "x"}], "annotations": []}, r"images\[0\]: the field 'id' holds True"),
    ],
)
def test_malformed_entries_are_named(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        list(build(tmp_path, content).records("train"))


def test_both_options_must_name_the_same_splits(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="both must name the same splits"):
        build_dataset("coco", images={"train": tmp_path}, annotations={"dev": tmp_path / "x.json"})
    with pytest.raises(DatasetError, match="at least one"):
        build_dataset("coco", images={}, annotations={})


def test_real_coco(vse_data: Path) -> None:
    folder = vse_data / "coco_mini"
    annotations = folder / "annotations" / "captions_train2017.json"
    dataset = build_dataset("coco", images={"train": folder / "images"}, annotations={"train": annotations})
    records = list(dataset.records("train"))
    content = json.loads(annotations.read_text())
    assert [int(record.image_id) for record in records] == [entry["id"] for entry in content["images"]]
    assert all(Path(record.image_uri).is_file() for record in records)
    texts = {str(entry["id"]): entry["caption"] for entry in content["annotations"]}
    assert {caption.caption_id: caption.text for record in records for caption in record.captions} == texts
