"""Columns of tables in every format, and what is no such table."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from preprocessing.table import read_columns

TABLE = pa.table({"image_id": ["a", "b", "c"], "negative": ["a dog, wet", "NA", None], "more": [1, 2, 3]})


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_columns_in_the_order_asked_for(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(TABLE, path)
    else:
        pyarrow.csv.write_csv(TABLE, path, pyarrow.csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ","))
    assert read_columns(path, ["negative", "image_id"]) == [["a dog, wet", "NA"], ["a", "b"]]
    with pytest.raises(ValueError, match="'image_id' and 'caption' can be read"):
        read_columns(path, ["image_id", "caption"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, suffix: str) -> None:
    path, twice = tmp_path / f"table{suffix}", TABLE.rename_columns(["image_id", "negative", "image_id"])
    if suffix == ".parquet":
        pyarrow.parquet.write_table(twice, path)
    else:
        pyarrow.csv.write_csv(twice, path)
    assert read_columns(path, ["negative"]) == [["a dog, wet", "NA"]]
    with pytest.raises(ValueError, match="the column 'image_id' is there 2 times: rename all but one"):
        read_columns(path, ["image_id"])


def test_other_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.csv")
    with pytest.raises(ValueError, match="it is not a regular file"):
        read_columns(tmp_path / "fifo.csv", ["image_id"])
    (tmp_path / "table.txt").write_text("image_id\n")
    odd = pa.array([b"\xff.png"], pa.binary()).view(pa.string())
    pyarrow.parquet.write_table(pa.table({"image_id": odd}), tmp_path / "odd.parquet")
    for name in ("table.txt", "gone.csv", "odd.parquet"):
        with pytest.raises(ValueError, match="no table"):
            read_columns(tmp_path / name, ["image_id"])
