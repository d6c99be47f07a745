"""Rows of published feature files."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.datasets import build_dataset
from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    features = np.random.default_rng(0).normal(size=(15, 4, 6)).astype(np.float32)
    features[7, 2, 3] = np.nan
    features[8, 0, 0] = 70_000
    np.save(tmp_path / "dev_ims.npy", features)
    return tmp_path / "dev_ims.npy"


def test_a_row_is_read_as_float16(file: Path) -> None:
    extractor = build_extractor("precomputed")
    items = [extractor.load(f"{file}#{row}") for row in (0, 14, 3)]
    for row, found in zip((0, 14, 3), extractor(items), strict=True):
        assert found.dtype == np.float16
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, np.load(file)[row].astype(np.float16))
    assert extractor.name == "region"
    assert extractor.identity() == {"extractor": "precomputed", "version": 1}


def test_one_vector_an_image_is_a_set_of_one(tmp_path: Path) -> None:
    np.save(tmp_path / "a_ims.npy", np.ones((3, 5), dtype=np.float16))
    assert build_extractor("precomputed").load(f"{tmp_path}/a_ims.npy#2").shape == (1, 5)


def test_dataset_and_extractor_agree_on_the_rows(file: Path) -> None:
    (file.parent / "dev_ids.txt").write_text("".join(f"{image}\n" for image in (4, 5, 6) for _ in range(5)))
    (file.parent / "dev_caps.txt").write_text("x\n" * 15)
    extractor = build_extractor("precomputed")
    rows = [
        extractor.load(record.image_uri) for record in build_dataset("precomputed", root=file.parent).records("dev")
    ]
    np.testing.assert_array_equal(rows, np.load(file)[[0, 5, 10]].astype(np.float16))


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("{file}#15", "row 15 of a file of 15 rows"),
        ("{file}#-1", "not a row of a feature file"),
        ("{file}#x", "not a row of a feature file"),
        ("{file}", "not a row of a feature file"),
        ("{file}.gone#0", "not a readable feature file"),
        ("{file}#7", "NaN, infinite or beyond"),
        ("{file}#8", "NaN, infinite or beyond"),
        ("{text}#0", "not a readable feature file"),
        ("{whole}#0", "an array of floats"),
    ],
)
def test_rows_that_cannot_be_used(file: Path, uri: str, reason: str) -> None:
    text, whole = file.with_name("text.npy"), file.with_name("whole.npy")
    text.write_text("no array")
    np.save(whole, np.zeros((2, 2), dtype=np.int32))
    with pytest.raises(ImageError, match=reason) as caught:
        build_extractor("precomputed").load(uri.format(file=file, text=text, whole=whole))
    assert "\n" not in str(caught.value)


def test_an_entry_of_an_hdf5_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="pip install h5py")
    frames = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    with h5py.File(tmp_path / "val_ft.hdf5", "w") as file:
        file["video7"] = frames
        file["broken"] = frames * np.inf
        file["words"] = "a text"
        file.create_dataset("huge", shape=(1 << 20, 2048), dtype="f4")  # takes no space on disk
    extractor = build_extractor("precomputed")
    np.testing.assert_array_equal(extractor.load(f"{tmp_path}/val_ft.hdf5#video7"), frames.astype(np.float16))
    reasons = {"video8": "no features of this name", "broken": "NaN, infinite or beyond"}
    for name, reason in (reasons | dict.fromkeys(("words", "huge"), "is not a set of vectors")).items():
        with pytest.raises(ImageError, match=reason):
            extractor.load(f"{tmp_path}/val_ft.hdf5#{name}")
    with pytest.raises(ExtractorError, match="cannot be read as an HDF5 file"):
        extractor.load(f"{tmp_path}/gone_ft.hdf5#video7")


@pytest.mark.parametrize(
    ("most", "rows"), [(1, [0]), (2, [0, 3]), (3, [0, 2, 3]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_of_a_large_set_vectors_are_spread_evenly(file: Path, most: int, rows: list[int]) -> None:
    """Four vectors; 1.5, the middle of three, is rounded to the even neighbour, as numpy does."""
    extractor = build_extractor("precomputed", largest_set=most)
    np.testing.assert_array_equal(extractor.load(f"{file}#3"), np.load(file)[3][rows].astype(np.float16))
    assert extractor.identity()["largest_set"] == most
