"""The published precomputed layout and its rule of five rows an image."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.datasets import DatasetError, build_dataset


def write(folder: Path, split: str, ids: list[str], rows: int, captions: int) -> np.ndarray:
    features = np.arange(rows * 6, dtype=np.float32).reshape(rows, 2, 3)
    np.save(folder / f"{split}_ims.npy", features)
    (folder / f"{split}_ids.txt").write_text("".join(f"{name}\n" for name in ids))
    (folder / f"{split}_caps.txt").write_text("".join(f"caption {k}\n" for k in range(captions)))
    return features


def upstream_rows(rows: int, captions: int) -> list[int]:
    """The row that the released code reads for each caption: its im_div rule, caption by caption."""
    division = 1 if rows == captions else 5
    return [caption // division for caption in range(captions)]


@pytest.mark.parametrize("repeated_ids", [False, True])
@pytest.mark.parametrize("repeated_rows", [False, True])
def test_each_image_once_with_its_five_captions(tmp_path: Path, repeated_ids: bool, repeated_rows: bool) -> None:
    names = ["41", "7", "19"]
    ids = [name for name in names for _ in range(5)] if repeated_ids else names
    rows = 15 if repeated_rows else 3
    write(tmp_path, "dev", ids, rows, 15)
    dataset = build_dataset("precomputed", root=tmp_path)
    records = list(dataset.records("dev"))
    assert [record.image_id for record in records] == names
    assert [caption.text for record in records for caption in record.captions] == [f"caption {k}" for k in range(15)]
    assert [caption.caption_id for caption in records[1].captions] == [f"dev#{k}" for k in range(5, 10)]
    of_captions = upstream_rows(rows, 15)
    for image, record in enumerate(records):
        assert record.image_uri == f"{tmp_path}/dev_ims.npy#{of_captions[image * 5]}"


def test_blank_captions_keep_the_lines_in_step(tmp_path: Path) -> None:
    write(tmp_path, "dev", ["1", "2"], 2, 10)
    (tmp_path / "dev_caps.txt").write_text("a\n\nc\nd\ne\nf\ng\nh\ni\nj\n")
    first, second = build_dataset("precomputed", root=tmp_path).records("dev")
    assert [caption.text for caption in first.captions] == ["a", "", "c", "d", "e"]
    assert second.captions[0].text == "f"


@pytest.mark.parametrize(
    ("ids", "rows", "captions", "message"),
    [
        (["1", "2"], 2, 9, "9 captions are not five an image"),
        ([], 0, 0, "0 captions are not five an image"),
        (["1", "2"], 3, 10, r"dev_ims\.npy: 3 rows for 10 captions; expected 2 .* or 10"),
        (["1", "2", "3"], 2, 10, r"dev_ids\.txt: 3 rows for 10 captions"),
        (["1", "1"], 2, 10, r"dev_ids\.txt:2: image id 1 is there already, in .*dev_ids\.txt:1;"),
        (["1"] * 4 + ["2"] * 6, 10, 10, r"dev_ids\.txt:5: id 2 among the five rows of image 1"),
        (["1", ""], 2, 10, r"dev_ids\.txt:2: empty line"),
    ],
)
def test_counts_that_do_not_fit_are_told(
    tmp_path: Path, ids: list[str], rows: int, captions: int, message: str
) -> None:
    write(tmp_path, "dev", ids, rows, captions)
    with pytest.raises(DatasetError, match=message):
        list(build_dataset("precomputed", root=tmp_path).records("dev"))


def test_features_of_another_kind_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "dev", ["1"], 1, 5)
    dataset = build_dataset("precomputed", root=tmp_path)
    path = tmp_path / "dev_ims.npy"
    whole = path.read_bytes()
    for content in (np.zeros((1, 2, 3), dtype=np.int64), np.zeros(5, dtype=np.float32)):
        np.save(path, content)
        with pytest.raises(DatasetError, match=r"floats of shape \(images, regions, features\) are needed"):
            list(dataset.records("dev"))
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="not a readable npy file"):
        list(dataset.records("dev"))
    for content_bytes in (b"", b"text", whole[:-8]):
        path.write_bytes(content_bytes)
        with pytest.raises(DatasetError, match="not a readable npy file"):
            list(dataset.records("dev"))


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no SPLIT_ims\.npy"):
        build_dataset("precomputed", root=tmp_path)
    with pytest.raises(DatasetError, match="there is no folder"):
        build_dataset("precomputed", root=tmp_path / "gone")
    write(tmp_path, "dev", ["1"], 1, 5)
    (tmp_path / "dev_ids.txt").unlink()
    with pytest.raises(DatasetError, match=r"split 'dev': there is no file .*dev_ids\.txt"):
        list(build_dataset("precomputed", root=tmp_path).records("dev"))


def test_the_features_are_never_loaded(tmp_path: Path) -> None:
    """A sparse file of 40 GB, far beyond any memory, is read at once."""
    rows = 10_000
    shape = (rows, 1000, 1000)
    np.lib.format.open_memmap(tmp_path / "train_ims.npy", mode="w+", dtype=np.float32, shape=shape).flush()
    (tmp_path / "train_ids.txt").write_text("".join(f"{k}\n" for k in range(rows)))
    (tmp_path / "train_caps.txt").write_text("x\n" * rows * 5)
    records = list(build_dataset("precomputed", root=tmp_path).records("train"))
    assert records[-1].image_uri.endswith(f"#{rows - 1}")
