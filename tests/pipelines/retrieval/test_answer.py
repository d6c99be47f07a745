"""A file of queries becomes a table of results; what is no query is listed, and nothing disappears."""

import csv
import errno
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.retrieval import answer, search
from pipelines.retrieval.answer import Wanted
from pipelines.retrieval.search_model import SearchModel, load_search_model
from preprocessing.features.images import load_image
from tests.pipelines.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("batch") / "bundle")


@pytest.fixture(scope="module")
def model(bundle: Path) -> SearchModel:
    return load_search_model(str(bundle), "unused")


def rows(output: Path) -> list[dict[str, object]]:
    if output.suffix == ".parquet":
        return list(pq.read_table(output).to_pylist())
    with output.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_every_line_finds_what_a_search_of_its_own_finds(
    model: SearchModel, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(answer._BATCH, "text", 2)
    texts = ["a red ring", 'a "blue" square, small', "ein grüner Stern"]
    queries, output = tmp_path / "queries.txt", tmp_path / f"results{suffix}"
    queries.write_text("\n".join(texts), encoding="utf-8")
    message = answer.search_batch(model, queries, output, Wanted("text", 3, "images"))
    assert message == f"3 queries searched with: {output}"
    found = rows(output)
    assert len(found) == 9
    for line, text in enumerate(texts, start=1):
        own = [row for row in found if int(str(row["line"])) == line]
        hits = model.answer(text, "text", 3, "images").hits
        assert [row["query"] for row in own] == [text] * 3
        assert [int(str(row["rank"])) for row in own] == [1, 2, 3]
        assert [row["item_id"] for row in own] == [hit.item_id for hit in hits]
        assert [float(str(row["similarity"])) for row in own] == pytest.approx(
            [hit.similarity for hit in hits], abs=1e-5
        )
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_no_cell_of_a_csv_is_a_formula_or_holds_control_characters(
    model: SearchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caption = replace(model.gallery.records[0].captions[0], text="@evil\x1b[2J")
    hostile = replace(model.gallery.records[0], captions=(caption, *model.gallery.records[0].captions[1:]))
    monkeypatch.setitem(model.gallery.__dict__, "records", (hostile, *model.gallery.records[1:]))
    monkeypatch.setitem(model.gallery.__dict__, "captions", [(0, caption), *model.gallery.captions[1:]])
    queries, output = tmp_path / "queries.txt", tmp_path / "results.csv"
    queries.write_bytes(b"=cmd|' /C calc'!A0\n-a red ring\x1b]0;x\x07\n+bad \xff\n")
    answer.search_batch(model, queries, output, Wanted("text", len(model.gallery.captions), "captions"))
    found, skipped = rows(output), rows(tmp_path / "results.csv.skipped.csv")
    assert {row["query"] for row in found} == {"'=cmd|' /C calc'!A0", "'-a red ring\\x1b]0;x\\x07"}
    assert "'@evil\\x1b[2J" in {row["caption"] for row in found}
    assert [row["query"] for row in skipped] == ["'+bad \ufffd"]
    assert b"\x1b" not in output.read_bytes()


def test_lines_that_are_no_queries_are_skipped_with_their_reasons(model: SearchModel, tmp_path: Path) -> None:
    queries, output = tmp_path / "queries.txt", tmp_path / "results.parquet"
    queries.write_bytes("\ufeffa red ring\r\n\n   \nblau\u00df\n".encode() + b"caf\xe9\na star")
    reasons = tmp_path / "results.parquet.skipped.csv"
    message = answer.search_batch(model, queries, output, Wanted("text", 1, "captions"))
    assert message == f"3 queries searched with: {output}; 3 lines were skipped: {reasons}"
    assert [(row["line"], row["query"]) for row in rows(output)] == [
        (1, "a red ring"),
        (4, "blau\u00df"),
        (6, "a star"),
    ]
    skipped = rows(reasons)
    assert [(row["line"], row["reason"][:8]) for row in skipped] == [
        ("2", "the line"),
        ("3", "the line"),
        ("5", "not UTF-"),
    ]
    queries.write_text("a red ring")
    answer.search_batch(model, queries, output, Wanted("text", 1, "captions"))
    assert not reasons.exists()


def test_images_that_cannot_be_read_are_skipped(model: SearchModel, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    stored, other = (model.gallery.records[place].image_uri for place in (3, 1))
    load_image(stored).save(good)
    bad.write_bytes(b"no image")
    queries, output = tmp_path / "queries.txt", tmp_path / "results.parquet"
    queries.write_text(f"{bad}\n{good}\n{tmp_path / 'absent.png'}\n{other}\n")
    reasons = tmp_path / "results.parquet.skipped.csv"
    message = answer.search_batch(model, queries, output, Wanted("image", 1, "images"))
    assert message == f"2 queries searched with: {output}; 2 lines were skipped: {reasons}"
    assert [(row["line"], row["image_uri"]) for row in rows(output)] == [(2, stored), (4, other)]
    assert [row["reason"][:12] for row in rows(reasons)] == ["not an image", "no such file"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_queries_without_a_hit_are_counted_and_keep_their_warnings(
    model: SearchModel, tmp_path: Path, suffix: str
) -> None:
    queries, output = tmp_path / "queries.txt", tmp_path / f"results{suffix}"
    queries.write_text("a ring\na zyzzyva\n")
    message = answer.search_batch(model, queries, output, Wanted("text", 1, "images", where="image is null"))
    assert message == f"2 queries searched with, 2 of them without a hit: {output}"
    warning = "Words that the model has not learned: zyzzyva."
    found = [(int(str(row["line"])), row["query"], row["warning"]) for row in rows(output)]
    assert found == [(1, "a ring", ""), (2, "a zyzzyva", warning)]
    others = ("rank", "similarity", "confidence", "item_id", "image_uri", "caption")
    assert {row[name] or None for row in rows(output) for name in others} == {None}


def test_a_batch_that_fails_leaves_the_old_results(
    model: SearchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, output = tmp_path / "queries.txt", tmp_path / "results.csv"
    queries.write_text("a ring")
    output.write_text("old")

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(answer, "_table", broken)
    with pytest.raises(OSError, match="no space"):
        answer.search_batch(model, queries, output, Wanted("text", 1, "images"))
    assert output.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["queries.txt", "results.csv"]


def test_the_command_says_how_many_lines_there_were(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    queries, output = tmp_path / "queries.txt", tmp_path / "results.csv"
    queries.write_text("a ring\n\na star\n")
    arguments = ["--model", str(bundle), "--queries", str(queries), "--output", str(output), "-k", "2"]
    search.main(arguments)
    out = capsys.readouterr().out
    assert out.startswith(f"2 queries searched with: {output}; 1 lines were skipped: {output}.skipped.csv")
    assert len(rows(output)) == 4
