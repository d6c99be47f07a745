"""Tables of images and captions: CSV, TSV and parquet, whole and damaged."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from preprocessing.datasets import Caption, DatasetError, Record, build_dataset
from preprocessing.datasets.table import read_columns

ROWS = 'image,caption,licence\na.jpg,A dog,x\na.jpg,"A dog, running",x\nin/b.png,"Two\nlines",y\n\nc.jpg,,y\n'


def write(folder: Path, text: str = ROWS, name: str = "train.csv") -> dict[str, Any]:
    (folder / "images").mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return {"images": folder / "images", "tables": {"train": folder / name}}


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> dict[str, Any]:
    parquet.write_table(pyarrow.table(columns), path)
    return {"tables": {"train": path}}


def test_rows_of_an_image_make_one_record(tmp_path: Path) -> None:
    dataset = build_dataset("table", **write(tmp_path))
    root = str(tmp_path / "images")
    assert (dataset.splits, dataset.root) == (("train",), root)
    assert list(dataset.records("train")) == [
        Record("a.jpg", f"{root}/a.jpg", "train", (Caption("a.jpg#0", "A dog"), Caption("a.jpg#1", "A dog, running"))),
        Record("in/b.png", f"{root}/in/b.png", "train", (Caption("in/b.png#0", "Two\nlines"),)),
        Record("c.jpg", f"{root}/c.jpg", "train", (Caption("c.jpg#0", ""),)),
    ]


def test_kinds_of_tables_say_the_same(tmp_path: Path) -> None:
    expected = list(build_dataset("table", **write(tmp_path)).records("train"))
    options = write(tmp_path)
    columns: dict[str, list[Any]] = {
        "image": ["a.jpg", "a.jpg", "in/b.png", "c.jpg"],
        "caption": ["A dog", "A dog, running", "Two\nlines", None],
    }
    lists: dict[str, list[Any]] = {
        "image": ["a.jpg", "in/b.png", "c.jpg"],
        "caption": [["A dog", "A dog, running"], ["Two\nlines"], [None]],
    }
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    (tmp_path / "t.tsv").write_text(
        '\ufeffcaption\timage\nA dog\ta.jpg\nA dog, running\ta.jpg\n"Two\nlines"\tin/b.png\n\tc.jpg\n'
    )
    write_parquet(tmp_path / "t.parquet", columns)
    write_parquet(tmp_path / "lists.parquet", lists)
    for name in ("t.csv.gz", "t.tsv", "t.parquet", "lists.parquet"):
        dataset = build_dataset("table", **options | {"tables": {"train": tmp_path / name}})
        assert list(dataset.records("train")) == expected, name


def test_a_caption_may_be_as_long_as_a_web_page(tmp_path: Path) -> None:
    text = "word " * 50_000
    (record,) = build_dataset("table", **write(tmp_path, f"image,caption\na.jpg,{text}\n")).records("train")
    assert record.captions[0].text == text


def test_absolute_addresses_need_no_folder(tmp_path: Path) -> None:
    options = write_parquet(tmp_path / "t.parquet", {"url": ["s3://bucket/a.jpg", "/data/b.jpg"], "text": ["a", "b"]})
    dataset = build_dataset("table", **options, image_column="url", caption_column="text")
    assert dataset.root == ""
    assert [record.image_uri for record in dataset.records("train")] == ["s3://bucket/a.jpg", "/data/b.jpg"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,caption\na.jpg,x,y\n", r"row 2: 3 values under a header of 2"),
        ("image,text\na.jpg,x\n", r"no column 'caption'; it has image, text"),
        ("image,caption,caption\na.jpg,x,y\n", r"2 columns are called 'caption'; rename all but one"),
        ('image,caption\na.jpg,"x\nb.jpg,x\n', r"unexpected end of data"),
        pytest.param("\0" * 5000, r"it has \0{300}; name", id="zeros"),
        ("", r"no column 'image'; it has no header"),
        ("image,caption\n", r"has no rows"),
        ("image,caption\n,x\n", r"row 2: 'image' is ''"),
        ('image,caption\na.jpg,"x" y\n', r"line 2: ',' expected after .*double each quote"),
        ("image,caption\n../a.jpg,x\n", r"row 2: image: the name '\.\./a\.jpg' is not a path inside"),
    ],
)
def test_bad_tables_are_named_by_file_and_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        list(build_dataset("table", **write(tmp_path, text)).records("train"))
    assert "train.csv" in str(caught.value)


def test_rows_come_in_any_order_and_images_lie_next_to_their_table(tmp_path: Path) -> None:
    options = write(tmp_path, "image,caption\na.jpg,one\nb.jpg,two\na.jpg,three\n/c.jpg,four\n")
    records = list(build_dataset("table", tables=options["tables"]).records("train"))
    assert [(record.image_uri, [caption.text for caption in record.captions]) for record in records] == [
        (f"{tmp_path}/a.jpg", ["one", "three"]),
        (f"{tmp_path}/b.jpg", ["two"]),
        ("/c.jpg", ["four"]),
    ]


def test_a_split_that_the_table_does_not_have_is_named_with_those_that_it_has(tmp_path: Path) -> None:
    options = write(tmp_path, "image,caption,fold\na.jpg,one,val\nb.jpg,two,Train\n")
    with pytest.raises(DatasetError, match="split 'train' has no rows of it; the column 'fold' has Train, val"):
        list(build_dataset("table", **options, split_column="fold").records("train"))


def test_the_line_ends_of_old_macs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"image;caption\ra.jpg;a dog\rb.jpg;a cat\r")
    records = build_dataset("table", tables={"train": tmp_path / "t.csv"}).records("train")
    assert [(each.image_id, each.captions[0].text) for each in records] == [("a.jpg", "a dog"), ("b.jpg", "a cat")]


def test_json_lines_with_numbers_that_are_missing(tmp_path: Path) -> None:
    rows = ['{"image": "a.jpg", "caption": "a dog", "score": NaN}', '{"image": "b.jpg", "caption": NaN}']
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    records = build_dataset("table", tables={"train": tmp_path / "t.jsonl"}).records("train")
    assert [each.captions[0].text for each in records] == ["a dog", ""]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_and_encodings_are_recognised(
    tmp_path: Path, separator: str, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("n", "image", "caption"), ("1", "a.jpg", "ein Hund läuft"), ("2", "b.jpg", "café, 5 €; zwei|drei")]
    text = "\r\n".join(separator.join(f'"{cell}"' for cell in row) for row in rows)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    first, second = build_dataset("table", tables={"train": tmp_path / "t.csv"}).records("train")
    assert [first.captions[0].text, second.captions[0].text] == [row[2] for row in rows[1:]]
    assert ("read as Windows-1252" in caplog.text) == (encoding == "cp1252")


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("end", ["", "\n", "\nb.jpg,no letter beyond ASCII\n"])
def test_an_encoding_is_recognised_by_what_comes_late(
    tmp_path: Path, encoding: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preprocessing.datasets.table._HEAD", 100)
    rows = [f"{row}.jpg,a plain caption of some words" for row in range(20)]
    text = "\n".join(["image,caption", *rows, "a.jpg,café"]) + end
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    records = build_dataset("table", tables={"train": tmp_path / "t.csv"}).records("train")
    assert next(record for record in records if record.image_id == "a.jpg").captions[0].text == "café"


def test_a_damaged_byte_makes_no_other_encoding(tmp_path: Path) -> None:
    text = "image,caption\na.jpg,läuft über Gräser\nb.jpg,".encode() + b"caf\xe9\n"
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(DatasetError, match=r"t\.csv.*utf-8"):
        list(build_dataset("table", tables={"train": tmp_path / "t.csv"}).records("train"))


def test_several_columns_and_lines_of_json(tmp_path: Path) -> None:
    rows = "image,de,en\na.jpg,ein Hund,a dog\nb.jpg,,a cat\nc.jpg,,\n"
    options = {"caption_column": ["en", "de"], **write(tmp_path, rows)}
    lines = [
        {"image": "a.jpg", "en": ["a dog"], "de": "ein Hund", "year": 3},
        {"image": "b.jpg", "en": "a cat"},
        {"image": "c.jpg"},
    ]
    (tmp_path / "t.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    for table in ("train.csv", "t.jsonl"):
        dataset = build_dataset("table", **options | {"tables": {"train": tmp_path / table}})
        captions = [[caption.text for caption in record.captions] for record in dataset.records("train")]
        assert captions == [["a dog", "ein Hund"], ["a cat"], [""]]
    (tmp_path / "t.jsonl").write_text('{"image": "a.jpg", "en": "x", "de": "y"}\n[1]\n')
    with pytest.raises(DatasetError, match=r"t\.jsonl, row 2: not a JSON object"):
        list(build_dataset("table", **options | {"tables": {"train": tmp_path / "t.jsonl"}}).records("train"))


def test_json_lines_may_begin_with_one_that_lacks_a_column(tmp_path: Path) -> None:
    lines = [{"image": "a.jpg", "en": "a dog"}, {"image": "b.jpg", "en": "a cat", "de": "eine Katze", "part": "train"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options: dict[str, Any] = {"tables": {"train": tmp_path / "t.jsonl"}, "caption_column": ["en", "de"]}
    first, second = build_dataset("table", **options).records("train")
    assert [[caption.text for caption in record.captions] for record in (first, second)] == [
        ["a dog"],
        ["a cat", "eine Katze"],
    ]
    (record,) = build_dataset("table", **options, split_column="part").records("train")
    assert record == second
    with pytest.raises(DatasetError, match="no column 'fr'; it has image, en, de; name the columns"):
        list(build_dataset("table", **options | {"caption_column": ["en", "fr", "de"]}).records("train"))


def test_a_share_of_the_images_stays_the_same_as_the_table_grows(tmp_path: Path) -> None:
    def images(number: int, **options: Any) -> dict[str, set[str]]:
        rows = "".join(f"{image}.jpg,one\n{image}.jpg,two\n" for image in range(number))
        tables = write(tmp_path, f"image,caption\n{rows}")["tables"] | {"dev": "10 %", "test": "5.5%"}
        dataset = build_dataset("table", tables=tables, **options)
        return {split: {record.image_id for record in dataset.records(split)} for split in dataset.splits}

    small, large, other = images(1000), images(2000), images(1000, share_seed=1)
    for splits, number in ((small, 1000), (large, 2000)):
        assert sum(map(len, splits.values())) == len(set.union(*splits.values())) == number
        assert len(splits["dev"]) == pytest.approx(number / 10, abs=4 * (number * 0.09) ** 0.5)
        assert len(splits["test"]) == pytest.approx(number * 0.055, abs=4 * (number * 0.052) ** 0.5)
    assert all(small[split] <= large[split] for split in small)
    assert other["dev"] != small["dev"]
    for tables, message in (
        ({"dev": "10 %"}, "all splits are shares"),
        ({"train": tmp_path / "train.csv", "dev": "60 %", "test": "40 %"}, "leave nothing of 'train'"),
        ({"train": write(tmp_path)["tables"]["train"], "dev": "0.1 %"}, "none of 3 images falls to 'dev'"),
    ):
        with pytest.raises(DatasetError, match=message):
            list(build_dataset("table", tables=tables).records("dev"))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"image,caption\n\xff\xfe\x00\x80")
    dataset = build_dataset("table", tables={"train": tmp_path / name})
    with pytest.raises(DatasetError, match=name):
        list(dataset.records("train"))


def test_a_cut_parquet_and_numbers_for_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    numbers = build_dataset("table", **write_parquet(path, {"image": ["/a"], "caption": [7]}))
    with pytest.raises(DatasetError, match=r"row 1: 'caption' is 7, text is needed"):
        list(numbers.records("train"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="not a table that can be read"):
        list(numbers.records("train"))


def test_other_files_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"is not a table: \.csv"):
        build_dataset("table", **write(tmp_path, name="t.xlsx"))


@pytest.mark.parametrize("name", ["t.CSV", "t.tsv", "t.parquet"])
def test_columns_of_a_table_without_the_rows_that_lack_one(tmp_path: Path, name: str) -> None:
    if name == "t.parquet":
        write_parquet(tmp_path / name, {"id": [1, 2, 3], "text": ["a dog, wet", "NA", None]})
    else:
        rows = [("id", "text", "more"), ("1", '"a dog, wet"', "x"), ("2", "NA", ""), ("3", "", "y")]
        (tmp_path / name).write_text("\n".join(("\t" if name == "t.tsv" else ",").join(row) for row in rows))
    assert read_columns(tmp_path / name, ["text", "id"]) == [["a dog, wet", "NA"], ["1", "2"]]
    with pytest.raises(DatasetError, match="no column 'gone'"):
        read_columns(tmp_path / name, ["gone"])


def test_columns_of_what_is_not_a_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.csv")
    odd = pyarrow.array([b"\xff.png"], pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"image": odd}), tmp_path / "odd.parquet")
    for name in ("fifo.csv", "gone.csv", "odd.parquet"):
        with pytest.raises(DatasetError, match=name):
            read_columns(tmp_path / name, ["image"])
