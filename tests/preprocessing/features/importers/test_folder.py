"""Folders of npz files, whole and damaged."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers import open_source

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=np.float32)


class Attack:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


def reason(folder: Path, form: str) -> str:
    source = open_source(folder, form)
    ((_, place),) = source.places()
    with pytest.raises(ImageError) as caught:
        source.read(place)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_npz_as_milvlg_writes_it(tmp_path: Path) -> None:
    info = {"objects_id": np.array([1, 2]), "attrs_id": np.array([3, 4])}
    np.savez(
        tmp_path / "COCO_val2014_000000000042.npz",
        x=FEATURES,
        bbox=BOXES,
        num_bbox=2,
        image_h=480,
        image_w=640,
        info=np.array(info, dtype=object),
    )
    (tmp_path / "deeper").mkdir()
    np.savez_compressed(tmp_path / "deeper" / "7.jpg.npz", x=FEATURES.astype(np.float16))
    source = open_source(tmp_path, "npz")
    names, places = zip(*source.places(), strict=True)
    whole, alone = map(source.read, places)
    assert names == ("COCO_val2014_000000000042", "deeper/7.jpg")
    assert whole.features.tolist() == [[0, 1, 2], [3, 4, 5]] == alone.features.tolist()
    assert whole.features.dtype == np.float16
    assert {name: values.tolist() for name, values in whole.companions.items()} == {"boxes": BOXES.tolist()}
    assert alone.companions == {}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"feat": FEATURES}, "there is no array 'x', but feat.npy"),
        ({"x": FEATURES[0]}, r"float32 of shape \(3,\)"),
        ({"x": FEATURES.astype(np.int64)}, "int64 of shape"),
        ({"x": FEATURES[:0]}, r"shape \(0, 3\)"),
        ({"x": FEATURES, "bbox": BOXES[:1]}, r"boxes are float32 of shape \(1, 4\)"),
        ({"x": FEATURES, "num_bbox": 3}, "num_bbox is 3, x has 2 rows"),
        ({"x": FEATURES, "num_bbox": BOXES}, r"num_bbox is \[\["),
        ({"x": FEATURES * np.nan}, "NaN"),
        ({"x": np.array([Attack()], dtype=object)}, "Object arrays cannot be loaded"),
    ],
)
def test_npz_with_other_contents(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "1.npz", **arrays)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(reason(tmp_path, "npz"))


def test_an_npz_that_unpacks_to_more_than_there_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2, 3)})
    with zipfile.ZipFile(tmp_path / "1.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(1_000_000))
    monkeypatch.setattr("preprocessing.features.importers.folder.MAX_VALUES", 1000)
    assert reason(tmp_path, "npz") == "the array 'x' is larger than any set of regions"


def test_folders_without_files(tmp_path: Path) -> None:
    with pytest.raises(ExtractorError, match=r"holds no file IMAGE\.npz"):
        list(open_source(tmp_path, "npz").places())
    (tmp_path / "file").touch()
    with pytest.raises(ExtractorError, match="is not a folder"):
        open_source(tmp_path / "file", "npz")
