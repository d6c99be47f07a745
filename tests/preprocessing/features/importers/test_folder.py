"""Folders of npz files, whole and damaged."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers import PublishedRegions, entries, open_source

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=np.float32)


class Attack:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


def reason(folder: Path, form: str) -> str:
    ((_, entry),) = entries(open_source(folder, form))
    assert isinstance(entry, ImageError), entry
    assert "\n" not in str(entry)
    return str(entry)


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
    (first, whole), (second, alone) = entries(open_source(tmp_path, "npz"))
    assert isinstance(whole, PublishedRegions)
    assert isinstance(alone, PublishedRegions)
    assert (first, second) == ("COCO_val2014_000000000042", "deeper/7.jpg")
    assert whole.regions.features.tolist() == [[0, 1, 2], [3, 4, 5]] == alone.regions.features.tolist()
    assert whole.regions.features.dtype == np.float16
    assert {name: values.tolist() for name, values in whole.regions.companions.items()} == {"boxes": BOXES.tolist()}
    assert whole.image_size == (640, 480)
    assert (alone.regions.companions, alone.image_size) == ({}, None)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"feat": FEATURES}, "there is no array 'x', but feat.npy"),
        ({"x": FEATURES[0]}, r"float32 of shape \(3,\)"),
        ({"x": FEATURES.astype(np.int64)}, "int64 of shape"),
        ({"x": FEATURES[:0]}, r"shape \(0, 3\)"),
        ({"x": FEATURES, "bbox": BOXES[:1]}, r"boxes are float32 of shape \(1, 4\)"),
        ({"x": FEATURES, "num_bbox": 3}, "num_bbox is 3, x has 2 rows"),
        ({"x": FEATURES, "image_w": BOXES}, "image_w is float32"),
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
        list(entries(open_source(tmp_path, "npz")))
    (tmp_path / "file").touch()
    with pytest.raises(ExtractorError, match="is not a folder"):
        open_source(tmp_path / "file", "npz")
