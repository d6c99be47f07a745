"""Crisscrossed Captions, from small files in the form of the released ones."""

from pathlib import Path

import pytest

from preprocessing.datasets.crisscrossed import Rating, read_crisscrossed
from preprocessing.datasets.record import DatasetError

FILES = {
    "sis_test.csv": "image1,image2,agg_score,sampling_method\n"
    "COCO_val2014_000000032001.jpg,COCO_val2014_000000432818.jpg,0.5,i2i_csim\n",
    "sts_test.csv": "caption1,caption2,agg_score,sampling_method\n"
    "COCO_val2014:sentid:98,COCO_val2014:sentid:480512,3.21,c2c_isim\n"
    "COCO_val2014:sentid:98,COCO_val2014:sentid:99,5.0,c2c_cocaption\n",
    "sits_test.csv": "caption,image,agg_score,sampling_method\n"
    "COCO_val2014:sentid:732091,COCO_val2014_000000365325.jpg,2.2,c2i_intrasim\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / name.replace("test", "val")).write_text(content.splitlines()[0] + "\n", encoding="utf-8")
    return tmp_path


def test_ids_are_those_of_karpathys_file(folder: Path):
    found = read_crisscrossed(folder, "test")
    assert found.images == (Rating("32001", "432818", 0.5),)
    assert found.captions == (Rating("98", "480512", 3.21), Rating("98", "99", 5.0))
    assert found.captions_images == (Rating("732091", "365325", 2.2),)


def test_dev_reads_the_files_called_val(folder: Path):
    assert read_crisscrossed(folder, "dev").images == ()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("sis_test.csv", "image1,image2", "image1,image1", r"2 columns are called 'image1'"),
        ("sis_test.csv", "agg_score", "score", r"sis_test\.csv: no column 'agg_score'; it has .*without '_raw'"),
        ("sis_test.csv", ",0.5,", ",9,", r"sis_test\.csv, row 2: agg_score is '9', a number from 0 to 5"),
        ("sts_test.csv", ":99,5.0", ":99", r"sts_test\.csv, row 3: 3 values under a header of 4"),
        ("sts_test.csv", "sentid:99", "99", r"sts_test\.csv, row 3: caption2 is 'COCO_val2014:99', expected"),
        ("sits_test.csv", "caption,image", "caption,imáge", r"sits_test\.csv: no column 'image'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(folder: Path, name: str, old: str, new: str, message: str):
    (folder / name).write_text(FILES[name].replace(old, new), encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        read_crisscrossed(folder, "test")


def test_a_split_that_nobody_rated_and_a_file_that_is_not_there(folder: Path):
    with pytest.raises(DatasetError, match="rates dev and test of Karpathy's split of COCO, not 'train'"):
        read_crisscrossed(folder, "train")
    (folder / "sits_test.csv").unlink()
    with pytest.raises(DatasetError, match=r"there is no file .*sits_test\.csv"):
        read_crisscrossed(folder, "test")
