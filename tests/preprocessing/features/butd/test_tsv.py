"""Bottom-up attention's TSV files, against a decoder written out here, whole and damaged; and the genuine file."""

import base64
import struct
from pathlib import Path

import numpy as np
import pytest

from preprocessing.features.butd.tsv import places, read_regions
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError


def floats(values: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def integers(values: list[int]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}q", *values)).decode()


BOXES = [0.0, 0.5, 20.25, 30.0, 1.0, 2.0, 3.0, 4.0]
FEATURES = [0.5, 1.5, 2.5, 0.0, 0.25, 7.0]
CAFFE = ["42", "640", "480", "2", floats(BOXES), floats(FEATURES)]
LXMERT = [
    "COCO_val2014_000000000042",
    "480",
    "640",
    integers([7, 1599]),
    floats([0.5, 0.25]),
    integers([3, 399]),
    floats([0.125, 1.0]),
    "2",
    floats(BOXES),
    floats(FEATURES),
]


def write(folder: Path, *rows: list[str]) -> Path:
    path = folder / "features.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("row", [CAFFE, LXMERT], ids=["caffe", "lxmert"])
def test_both_orders_of_columns(tmp_path: Path, row: list[str]) -> None:
    path = write(tmp_path, row)
    ((image_id, place),) = places(path)
    entry = read_regions(path, place)
    assert image_id == row[0]
    assert entry.features.dtype == np.float16
    assert entry.features.tolist() == [[0.5, 1.5, 2.5], [0.0, 0.25, 7.0]]
    assert entry.companions["boxes"].dtype == np.float32
    boxes = {"boxes": [BOXES[:4], BOXES[4:]]}
    assert {name: values.tolist() for name, values in entry.companions.items()} == (
        boxes
        if row is CAFFE
        else {
            **boxes,
            "objects": [7, 1599],
            "object_scores": [0.5, 0.25],
            "attributes": [3, 399],
            "attribute_scores": [0.125, 1.0],
        }
    )


def replaced(position: int, value: str) -> list[str]:
    return [*CAFFE[:position], value, *CAFFE[position + 1 :]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (CAFFE[:4], "4 columns instead of 6 or 10"),
        ([*CAFFE[:5], CAFFE[5][:-5]], "features: no base64|features: .* cut short"),
        ([*CAFFE[:5], floats(FEATURES[:5])], "5 numbers of features and 8 of boxes for 2 boxes"),
        (replaced(4, floats(BOXES[:6])), "6 numbers of features and 6 of boxes for 2 boxes"),
        (replaced(4, "!!!!"), "boxes: no base64"),
        (replaced(3, "0"), "count is b'0'"),
        (replaced(3, "9" * 5000), "count is"),
        ([*CAFFE[:5], floats([*FEATURES[:5], float("nan")])], "NaN, infinite"),
        ([*CAFFE[:5], floats([*FEATURES[:5], 70_000.0])], "range of float16"),
        (replaced(4, floats([*BOXES[:7], float("inf")])), "boxes are float32"),
        ([*LXMERT[:3], integers([7]), *LXMERT[4:]], r"objects are of shape \(1,\)"),
        ([*LXMERT[:4], floats([0.5] * 3), *LXMERT[5:]], "object_scores are of shape"),
    ],
)
def test_damaged_lines_are_skipped_and_the_others_read(tmp_path: Path, row: list[str], reason: str) -> None:
    good = [["1", *CAFFE[1:]], row, ["3", *CAFFE[1:]]]
    path = write(tmp_path, *good)
    names, lines = zip(*places(path), strict=True)
    assert names == ("1", row[0], "3")
    with pytest.raises(ImageError, match=reason) as caught:
        read_regions(path, lines[1])
    assert "\n" not in str(caught.value)
    found = read_regions(path, lines[2])
    assert found.features.tolist() == [[0.5, 1.5, 2.5], [0.0, 0.25, 7.0]]


def test_sources_that_are_not_a_tsv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "gone.tsv", tmp_path):
        with pytest.raises(ExtractorError, match=f"{path} is not a file"):
            list(places(path))
    path = tmp_path / "zeros.tsv"
    path.write_bytes(b"\0" * 500)
    monkeypatch.setattr("preprocessing.features.butd.tsv._LONGEST_LINE", 100)
    with pytest.raises(ExtractorError, match="a line of more than 100 bytes"):
        list(places(path))


def test_the_genuine_features_of_caffe(vse_data: Path) -> None:
    """36 boxes of 2048 non-negative numbers within each photograph; every number as a decoder of the bytes gives it."""
    path = vse_data / "butd_reference" / "train2014_obj36.tsv"
    lines = path.read_text().splitlines()
    for (image_id, place), line in zip(places(path), lines, strict=True):
        entry = read_regions(path, place)
        features, companions = entry.features, entry.companions
        columns = line.split("\t")
        assert image_id == columns[0]
        assert features.shape == (36, 2048)
        assert features.min() >= 0
        width, height = int(columns[2]), int(columns[1])
        x1, y1, x2, y2 = companions["boxes"].T
        assert (x1 >= 0).all()
        assert (y1 >= 0).all()
        assert (x1 < x2).all()
        assert (y1 < y2).all()
        assert (x2 <= width).all()
        assert (y2 <= height).all()
        raw = base64.b64decode(columns[9])
        expected = [struct.unpack_from("<2048f", raw, 4 * 2048 * region) for region in range(36)]
        np.testing.assert_array_equal(features, np.array(expected, dtype=np.float16))
        assert companions["boxes"].ravel().tolist() == list(struct.unpack("<144f", base64.b64decode(columns[8])))
        assert companions["objects"].tolist() == list(struct.unpack("<36q", base64.b64decode(columns[3])))
        assert companions["object_scores"].tolist() == list(struct.unpack("<36f", base64.b64decode(columns[4])))
        assert companions["attributes"].max() < 400
        assert companions["objects"].max() < 1600
