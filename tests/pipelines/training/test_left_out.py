"""Files of captions that training leaves out, and the numbers of those that stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.runtime.stage import StageError
from pipelines.training.left_out import keep_captions, kept_captions, named_pairs, pairs_of, write_pairs
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import write_shard
from tests.preprocessing.conftest import make_sample


@pytest.fixture
def reader(tmp_path: Path) -> ShardReader:
    """Five images in two shards, with two captions each."""
    for shard, numbers in enumerate(([0, 1, 2], [3, 4])):
        path = tmp_path / "shards" / f"shard-{shard:05d}.tar"
        path.parent.mkdir(exist_ok=True)
        write_shard(path, [make_sample(number, captions=2) for number in numbers], "f")
    return ShardReader(tmp_path / "shards", "grid")


def test_the_captions_that_a_file_does_not_name_are_kept(reader: ShardReader, tmp_path: Path) -> None:
    pairs = list(pairs_of(reader))
    assert kept_captions(tmp_path) is None
    write_pairs(tmp_path / "out.csv", [(*pairs[number], "0.1") for number in (0, 7)], ["fit"])
    assert keep_captions(tmp_path / "out.csv", reader, tmp_path) == 8
    kept = kept_captions(tmp_path)
    assert kept is not None
    assert kept.tolist() == [1, 2, 3, 4, 5, 6, 8, 9]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Ids and captions may hold commas, quotes, line breaks, and bytes that are not UTF-8."""
    odd = [('a "b", c', "1\n2"), (os.fsdecode(b"\xff.jpg"), "x"), ("a\rb", "1\r")]
    for caption in ('a "caption",\nof two lines', "a dog\rruns", 200_000 * "long "):
        write_pairs(tmp_path / "out.csv", [(*pair, "1", caption) for pair in odd], ["fit", "caption"])
        assert named_pairs(tmp_path / "out.csv") == set(odd)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_file_that_a_spreadsheet_has_written_is_read(tmp_path: Path, separator: str) -> None:
    lines = (separator.join(cells) for cells in (("image_id", "caption_id", "caption"), ("a", "1", "one, two; three")))
    text = "\r\n".join(lines).replace("one, two; three", '"one, two; three"')
    (tmp_path / "out.csv").write_text(text, encoding="utf-8-sig", newline="")
    assert named_pairs(tmp_path / "out.csv") == {("a", "1")}


def test_ids_that_name_another_caption_than_they_did_are_refused(reader: ShardReader, tmp_path: Path) -> None:
    pairs, texts = list(pairs_of(reader)), list(reader.texts())
    write_pairs(tmp_path / "out.csv", [(*pairs[3], texts[3]), ("gone", "1", "a caption")], ["caption"])
    assert keep_captions(tmp_path / "out.csv", reader, tmp_path) == 9
    write_pairs(tmp_path / "out.csv", [(*pairs[3], "a caption that stood there before")], ["caption"])
    with pytest.raises(StageError, match=r"'a caption that stood there before', which is .* now"):
        keep_captions(tmp_path / "out.csv", reader, tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"the file .*out\.csv does not exist"):
        named_pairs(tmp_path / "out.csv")


@pytest.mark.parametrize(
    "content", ["", "image_id,text\na,b\n", 'image_id,caption_id\n"a\n', "image_id,caption_id\na\n"]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "out.csv").write_text(content)
    with pytest.raises(
        StageError, match=r"training\.leave_out: .*out\.csv is not a CSV file in UTF-8 with the columns"
    ):
        named_pairs(tmp_path / "out.csv")


def test_a_file_of_other_data_is_refused(reader: ShardReader, tmp_path: Path) -> None:
    write_pairs(tmp_path / "out.csv", [("elsewhere", "1")])
    with pytest.raises(StageError, match="names 1 captions, none of which is in the training split"):
        keep_captions(tmp_path / "out.csv", reader, tmp_path)
