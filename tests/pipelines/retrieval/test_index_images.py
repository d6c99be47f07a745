"""A gallery of images without captions: made, resumed, updated, searched and deleted; Ray is left out."""

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from pipelines.inference.embedder import Embedder
from pipelines.retrieval import gallery_storage, image_gallery, index_images, search_model
from pipelines.retrieval import search as search_command
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.embed_images import embed_files
from pipelines.retrieval.image_files import ImageFile, list_images, read_metadata
from pipelines.retrieval.index import main
from pipelines.retrieval.options import gallery_folder
from pipelines.retrieval.search_model import SearchError, SearchModel, load_search_model
from pipelines.runtime.cli import guarded
from pipelines.serving.replica import Search, SearchReplica
from pipelines.serving.request_error import RequestError
from preprocessing.features import images
from preprocessing.features.images import load_image, thumbnail
from tests.pipelines.tiny_bundle import write_tiny_bundle
from vse_core.digests import write_digests


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("index") / "bundle")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "work"))
    folder = tmp_path / "photos"
    (folder / "inner").mkdir(parents=True)
    for number, name in enumerate(("a.jpg", "b.png", "inner/c.png")):
        load_image(f"scene://0/{number}").save(folder / name)
    (folder / "bad.jpg").write_text("no image")
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch, bundle: Path) -> list[str]:
    """The ids of the images that are embedded, by the actors' own function in this process."""
    ids: list[str] = []
    embedder = Embedder(bundle / "model", bundle / "extractor")

    def embed(todo: list[ImageFile], bundle: Path, images: str, folder: Path, parts: Path, _actors: int) -> object:
        root, correction = images if Path(images).is_dir() else "", Correction.load(bundle / "correction")
        found, skipped = embed_files(embedder, todo, root, correction)
        if found is None:
            return [], skipped
        ids.extend(file.image_id for file in found.files)
        return [image_gallery.write_part(folder, parts, found)], skipped

    monkeypatch.setattr(index_images, "embed_images", embed)
    return ids


def index(*arguments: str) -> int:
    return guarded(partial(main, ["--name", "holiday", *arguments]))


def holiday() -> SearchModel:
    return load_search_model(str(gallery_folder("holiday")), "unused")


def vectors() -> torch.Tensor:
    (path,) = gallery_folder("holiday").glob("0*/images.parquet")
    return torch.from_numpy(pyarrow.parquet.read_table(path)["vectors"].combine_chunks().to_numpy_ndarray())


def ids(model: SearchModel) -> list[str]:
    return [record.image_id for record in model.gallery.records]


def test_the_vectors_are_those_of_the_embedder(bundle: Path, photos: Path) -> None:
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    model = holiday()
    assert ids(model) == ["a.jpg", "b.png", "inner/c.png"]
    expected = Embedder(bundle / "model", bundle / "extractor").embed_images(
        [str(photos / name) for name in ids(model)]
    )
    torch.testing.assert_close(vectors(), expected)
    assert model.answer(str(photos / "b.png"), "image", 1, model.target_of("image")).hits[0].item_id == "b.png"
    assert len(model.answer("a red ring", "text", 10, "images").hits) == 3
    assert "bad.jpg" in (gallery_folder("holiday") / "skipped.csv").read_text()


def test_the_captions_of_training_correct_images_without_captions(
    photos: Path, tmp_path: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundle of the other tests has the same model, and no correction."""
    bundle = write_tiny_bundle(tmp_path / "corrected", is_corrected=True)
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    gallery, correction = holiday().gallery, Correction.load(bundle / "correction")
    assert gallery.biases is not None
    assert correction is not None
    sims_BM = (vectors().double() @ correction.texts_MD.double().T).amax(dim=1)
    expected_B = 0.1 * (sims_BM / 0.1).exp().sum(dim=1).log()
    torch.testing.assert_close(gallery.biases.images_B.double(), expected_B, atol=1e-5, rtol=0)
    assert pyarrow.parquet.read_schema(next(gallery_folder("holiday").glob("0*/*.parquet"))).names[-1] == "bias"
    shutil.rmtree(bundle / "correction")
    write_digests(bundle)
    assert index() == 0
    assert "holiday: hubs are not corrected" in capsys.readouterr().out
    assert len(embedded) == 6, "another correction is another origin: all images are embedded again"
    assert holiday().gallery.biases is None


def test_only_new_and_changed_files_are_embedded_and_gone_ones_removed(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    index("--model", str(bundle), "--images", str(photos))
    embedded.clear()
    load_image("scene://0/7").save(photos / "b.png")
    load_image("scene://0/8").save(photos / "d.png")
    (photos / "a.jpg").unlink()
    capsys.readouterr()
    assert index("--dry-run") == 0
    assert "2 to embed, 1 to remove, 1 to skip" in capsys.readouterr().out
    assert not embedded
    assert index() == 0
    assert embedded == ["b.png", "d.png"]
    model = holiday()
    assert ids(model) == ["b.png", "d.png", "inner/c.png"]
    assert model.answer(str(photos / "b.png"), "image", 1, "images").hits[0].similarity == pytest.approx(1, abs=1e-3)
    assert len(list(gallery_folder("holiday").glob("0*"))) == 1
    capsys.readouterr()
    (photos / "d.png").write_bytes(b"damaged")
    assert index() == 0
    assert "2 images; 0 embedded, 1 removed, 2 skipped" in capsys.readouterr().out


def test_finished_parts_of_a_killed_update_are_not_embedded_again(
    bundle: Path, photos: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(image_gallery, "publish", lambda *_: os.kill(os.getpid(), 15))
        assert index("--model", str(bundle), "--images", str(photos)) == 130
    embedded.clear()
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    assert not embedded
    assert ids(holiday()) == ["a.jpg", "b.png", "inner/c.png"]


def test_another_model_embeds_everything_again(bundle: Path, photos: Path, embedded: list[str]) -> None:
    index("--model", str(bundle), "--images", str(photos))
    embedded.clear()
    state = image_gallery.read_state(gallery_folder("holiday"))
    assert state is not None
    gallery_storage.write_state(
        gallery_folder("holiday"), {**state, "origin": {"model": "other", "extractor": "other"}}
    )
    assert index() == 0
    assert len(embedded) == 3


def test_a_gallery_of_another_format(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An earlier one is taken up, a later one or a changed one is refused with what to do, which works."""
    index("--model", str(bundle), "--images", str(photos))
    embedded.clear()
    path = gallery_folder("holiday") / gallery_storage.STATE
    record = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in record.items() if key != "sha256"} | {"format": 1}))
    assert index() == 0
    assert not embedded
    changes = {"has format 3, of a later version": {"format": 3}, "was changed after": {"images": "/"}}
    for message, change in changes.items():
        path.write_text(json.dumps(record | change))
        assert index() == 1
        assert message in capsys.readouterr().err
    assert index("--delete") == 0
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    assert len(embedded) == 3


def test_a_folder_that_is_empty_or_another_one_changes_nothing(
    bundle: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index("--model", str(bundle), "--images", str(photos))
    (tmp_path / "empty").mkdir()
    assert index("--model", str(bundle), "--images", str(tmp_path / "empty")) == 1
    assert "is of" in capsys.readouterr().err
    photos.rename(tmp_path / "away")
    photos.mkdir()
    assert index() == 1
    assert "is the folder mounted?" in capsys.readouterr().err
    assert len(ids(holiday())) == 3


def test_a_link_that_leads_out_is_skipped(bundle: Path, photos: Path, tmp_path: Path) -> None:
    load_image("scene://0/9").save(tmp_path / "secret.png")
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    index("--model", str(bundle), "--images", str(photos))
    assert "link.png" not in ids(holiday())
    assert "leads out" in (gallery_folder("holiday") / "skipped.csv").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_table_names_images(bundle: Path, photos: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = photos / f"table{suffix}"
    table = pa.table({"image": ["b.png", "inner/c.png", "b.png", "gone.png"], "other": ["1", "2", "3", "4"]})
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        separator = "," if suffix == ".csv" else "\t"
        rows = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
        path.write_text("".join(f"{separator.join(row)}\n" for row in rows))
    assert [file.image_id for file in list_images(str(path))[0]] == ["b.png", "gone.png", "inner/c.png"]
    assert index("--model", str(bundle), "--images", str(path)) == 0
    assert ids(holiday()) == ["b.png", "inner/c.png"]
    (photos / "b.png").unlink()
    assert index() == 0
    assert "1 images; 0 embedded, 1 removed, 2 skipped" in capsys.readouterr().out


def with_columns(photos: Path) -> Path:
    path = photos / "table.csv"
    rows = ["image,year,tags,taken,licence", "b.png,2021,sea;dog,2021-05-01,CC0", "a.jpg,2019,,2019-01-02,"]
    path.write_text("\n".join([*rows, "inner/c.png,,dog,,CC-BY", "b.png,1999,twice,,CC0", "gone.png,2024,,,"]) + "\n")
    return path


def found(where: str) -> list[str]:
    return sorted(hit.item_id for hit in holiday().answer("a red ring", "text", 10, "images", where=where).hits)


def test_columns_of_a_table_are_kept_and_choose_images(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an image that comes twice the first row counts; a column that changes needs no embedding."""
    path = with_columns(photos)
    assert index("--model", str(bundle), "--images", str(path)) == 0
    said = capsys.readouterr().out
    assert "columns image, year, tags, taken, licence" in said
    assert "1 rows name an image again: of each image the first row counts" in said
    assert found("year >= 2020") == ["b.png"]
    assert found("taken < '2020-01-01' or tags contains 'dog' and licence != 'CC0'") == ["a.jpg", "inner/c.png"]
    assert found("year is null and image contains 'inner/'") == ["inner/c.png"]
    assert found("year > 2021") == []
    with pytest.raises(SearchError, match=r"no column 'yaer'; the gallery has image \(text\), year \(numbers\), tags"):
        found("yaer > 2021")
    embedded.clear()
    assert index() == 0
    assert "up to date" in capsys.readouterr().out
    path.write_text(path.read_text().replace("a.jpg,2019", "a.jpg,2025"))
    assert index() == 0
    assert not embedded
    assert found("year > 2021") == ["a.jpg"]
    (metadata,) = gallery_folder("holiday").glob("0*/metadata.parquet")
    metadata.write_bytes(metadata.read_bytes()[:-1] + b"x")
    with pytest.raises(SearchError, match=r"metadata\.parquet is damaged.*: index the images again: .*--name holiday"):
        holiday()
    assert index() == 0
    assert "index and columns are written again" in " ".join(capsys.readouterr().out.split())
    assert found("year > 2021") == ["a.jpg"]


def test_a_damaged_index_is_made_again(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    before = found("image contains 'png'")
    (damaged,) = gallery_folder("holiday").glob("0*/images.faiss")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(SearchError, match=r"images\.faiss is damaged.*: index the images again: .*--name holiday"):
        holiday()
    embedded.clear()
    assert index() == 0
    assert "index and columns are written again" in " ".join(capsys.readouterr().out.split())
    assert found("image contains 'png'") == before
    assert not embedded


@pytest.mark.parametrize("value", ["2020-01-01T10:00:00", "2020-01-01T10:00:00Z", "12:30", "1.5", "nan", "2020-01-01"])
def test_columns_of_any_type_that_do_not_change_leave_a_gallery_up_to_date(
    bundle: Path, photos: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = photos / "table.csv"
    path.write_text(f"image,value\nb.png,{value}\na.jpg,\n")
    assert index("--model", str(bundle), "--images", str(path)) == 0
    assert found("value is null") == (["a.jpg", "b.png"] if value == "nan" else ["a.jpg"])
    capsys.readouterr()
    assert index() == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.timestamp("s"))], ids=str
)
def test_lists_that_do_not_change_leave_a_gallery_up_to_date(
    bundle: Path, photos: Path, kind: pa.DataType, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON lines have dates in seconds, which Parquet has not."""
    if pa.types.is_timestamp(kind.value_type):
        path = photos / "table.jsonl"
        path.write_text('{"image": "b.png", "value": ["2020-01-01", null]}\n{"image": "a.jpg"}\n')
        assert pyarrow.json.read_json(path).schema.field("value").type == kind
    else:
        path = photos / "table.parquet"
        values = pa.array([[1, float("nan"), None], None], kind)
        pyarrow.parquet.write_table(pa.table({"image": ["b.png", "a.jpg"], "value": values}), path)
    assert index("--model", str(bundle), "--images", str(path)) == 0
    assert found("value is null") == ["a.jpg"]
    capsys.readouterr()
    assert index() == 0
    assert "up to date" in capsys.readouterr().out


def test_the_search_command_chooses_by_a_condition(
    bundle: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index("--model", str(bundle), "--images", str(with_columns(photos)))

    def search(*arguments: str) -> int:
        return guarded(partial(search_command.main, ["--gallery", "holiday", *arguments]))

    sheet = tmp_path / "sheet.html"
    sheet.write_text("an earlier search")
    assert search("a red ring", "--where", "year > 2021", "--output", str(sheet)) == 0
    assert "Nothing was found where year > 2021." in capsys.readouterr().out
    assert "a red ring" in sheet.read_text()
    queries, output = tmp_path / "queries.txt", tmp_path / "found.parquet"
    queries.write_text("a red ring\na blue square\n")
    assert search("--queries", str(queries), "--output", str(output), "--where", "year < 2020") == 0
    assert pyarrow.parquet.read_table(output)["item_id"].to_pylist() == ["a.jpg", "a.jpg"]
    output.unlink()
    assert search("--queries", str(queries), "--output", str(output), "--where", "yaer < 2020") == 1
    assert "no column 'yaer'" in capsys.readouterr().err
    assert not output.exists()


def test_codes_in_a_csv_keep_what_tells_them_apart(bundle: Path, photos: Path) -> None:
    rows = [
        "image,sku,serial,tweet,year,colour,phone,exposure",
        "a.jpg,00123,12345678901234567890,1234567890123456789,2020,0x1F,+491511234567,+0.67",
        "b.png,123,12345678901234567891,1234567890123456788,2021,0x20,+491511234568,-0.33",
    ]
    (photos / "table.csv").write_text("\n".join(rows))
    index("--model", str(bundle), "--images", str(photos / "table.csv"))
    codes = ("sku = '00123'", "serial = '12345678901234567890'", "colour = '0x1F'", "phone = '+491511234567'")
    for condition in (*codes, "tweet = 1234567890123456789", "year < 2021", "exposure > 0"):
        assert found(condition) == ["a.jpg"]


def test_times_of_json_lines_keep_their_zone(tmp_path: Path) -> None:
    """As those of a CSV do; Arrow reads them as UTC and forgets that they were. Dates and times without one stay."""
    rows = [
        {"image": "a.jpg", "taken": "2024-05-31T10:00:00+02:00", "day": "2024-05-31", "noted": "2024-05-31 10:00:00"},
        {"image": "b.jpg", "taken": "2024-05-31T10:00:00Z", "day": "2024-06-01", "noted": "2024-05-31 11:00:00"},
    ]
    (tmp_path / "t.csv").write_text("\n".join(",".join(each) for each in (rows[0], *(row.values() for row in rows))))
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    mixed = [rows[0] | {"odd": 1}, rows[1] | {"odd": "x"}]  # read column by column
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, mixed)))
    read = [read_metadata(str(tmp_path / name))[0] for name in ("t.csv", "t.jsonl", "mixed.jsonl")]
    of_csv, *of_json = (table.sort_by("image") for table in read if table is not None)
    assert len(of_json) == 2
    for table in of_json:
        assert str(table["taken"].type).endswith("tz=UTC]")
        assert [time.isoformat() for time in table["taken"].to_pylist()] == [
            "2024-05-31T08:00:00+00:00",
            "2024-05-31T10:00:00+00:00",
        ]
        assert table["taken"].to_pylist() == of_csv["taken"].to_pylist()
        assert table["noted"].to_pylist() == of_csv["noted"].to_pylist()


def test_vectors_of_a_table_do_not_hide_its_other_columns(tmp_path: Path) -> None:
    """Arrow reads no lists of a fixed size of which one is missing."""
    vectors = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    table = pa.table({"embedding": vectors, "image": ["a.jpg", "b.jpg", "c.jpg"], "year": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    columns, left_out, _ = read_metadata(str(tmp_path / "t.parquet"))
    assert columns is not None
    assert (columns.sort_by("image"), left_out) == (table.select(["image", "year"]), ["embedding"])


@pytest.mark.parametrize("names", [("2024-05-01", "2024-05-02"), ("0", "1"), (0, 1)])
def test_images_of_json_lines_may_be_named_like_other_things(tmp_path: Path, names: tuple[str | int, ...]) -> None:
    rows = [{"image": name, "day": day} for day, name in enumerate(names)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns, *_ = read_metadata(str(tmp_path / "t.jsonl"))
    assert columns is not None
    assert columns.sort_by("image").to_pylist() == [{**row, "image": str(row["image"])} for row in rows]
    assert {each.image_id for each in list_images(str(tmp_path / "t.jsonl"))[0]} == {str(name) for name in names}


def test_a_gallery_that_became_too_small_for_its_form_says_what_helps(
    bundle: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(8):
        load_image(f"scene://0/{number}").save(photos / f"{number}.png")
    assert index("--model", str(bundle), "--images", str(photos), "--compress", "pca8") == 0
    for path in photos.glob("[0-9].png"):
        path.unlink()
    assert index() == 1
    told = capsys.readouterr().err
    assert "too few to find 8 dimensions; name fewer, or compress by int8 alone; the gallery has had this form" in told
    assert index("--compress", "none") == 0


def test_columns_that_no_condition_can_name_are_left_out_and_said(
    bundle: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({
        "image": ["a.jpg", None, "b.png"], "bytes": [b"1", b"2", b"3"], "place": [{"x": 1}] * 3, 'a "b"': [1, 2, 3],
        "kind": pa.array(["one", "two", "one"]).dictionary_encode(), "tags": [["x"], ["y"], ["y", "z"]],
    })  # fmt: skip
    pyarrow.parquet.write_table(table, photos / "table.parquet")
    assert index("--model", str(bundle), "--images", str(photos / "table.parquet")) == 0
    said = capsys.readouterr().out
    assert 'columns image, kind, tags; left out, as no condition can name their values: bytes, place, a "b"' in said
    assert found("kind = 'one' and tags contains 'z'") == ["b.png"]


def test_a_folder_has_the_names_of_its_images_to_choose_by(bundle: Path, photos: Path) -> None:
    index("--model", str(bundle), "--images", str(photos))
    assert found("not image contains '/'") == ["a.jpg", "b.png"]
    with pytest.raises(SearchError, match=r"no column 'year'; the gallery has image \(text\)$"):
        found("year = 1")


def test_another_form_of_the_vectors_needs_no_embedding_and_stays(
    photos: Path, tmp_path: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_tiny_bundle(tmp_path / "corrected", is_corrected=True)
    index("--model", str(bundle), "--images", str(photos))
    embedded.clear()
    before = [hit.item_id for hit in holiday().answer("a red ring", "text", 3, "images").hits]
    assert index("--compress", "pca8-int8") == 0
    said = "index: exact, hubs corrected, pca8-int8, fitted to 3 images and 15 captions of training, with recall"
    assert said in capsys.readouterr().out
    load_image("scene://0/7").save(photos / "new.png")
    assert index() == 0
    assert embedded == ["new.png"]
    assert holiday().index.images.facts.compression == "pca8-int8"
    assert holiday().index.images.vectors.sa_code_size() == 16
    (photos / "new.png").unlink()
    assert index("--compress", "none") == 0
    assert [hit.item_id for hit in holiday().answer("a red ring", "text", 3, "images").hits] == before
    assert holiday().index.images.facts.compression == ""


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("pca17", "--compress pca17: the model's vectors have 16 dimensions"),
        ("pca12", "--compress pca12: 4 vectors are too few to find 12 dimensions"),
        (
            "small",
            "--compress is not a compression: write pca128-int8 (any width from 2), pca256, int8, float16; got 'small'",
        ),
    ],
)
def test_a_form_that_cannot_be_fitted_is_refused_before_anything_is_embedded(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str], form: str, message: str
) -> None:
    assert index("--model", str(bundle), "--images", str(photos), "--compress", form) == 1
    assert message in capsys.readouterr().err
    assert not embedded


def test_odd_files_are_embedded_or_skipped_with_their_reason(bundle: Path, photos: Path) -> None:
    sizes = [(1, 5000), (5000, 1), (3000, 2), (1, 1)]
    for width, height in sizes:
        Image.new("RGB", (width, height), "red").save(photos / f"{width}x{height}.png")
    shutil.copy(photos / "a.jpg", os.fsencode(photos) + b"/caf\xe9.jpg")
    shutil.copy(photos / "a.jpg", photos / "two\nlines.jpg")
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    assert {"two\nlines.jpg", *(f"{width}x{height}.png" for width, height in sizes)} < set(ids(holiday()))
    report = (gallery_folder("holiday") / "skipped.csv").read_text()
    assert r'"caf\udce9.jpg"' in report
    assert "its path is not UTF-8; rename it" in report


def test_what_was_skipped_is_tried_again_when_it_changes(
    bundle: Path,
    photos: Path,
    embedded: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (photos / "bad.jpg").rename(photos / "bad\n1.jpg")
    index("--model", str(bundle), "--images", str(photos))
    state = (gallery_folder("holiday") / gallery_storage.STATE).read_bytes()
    embedded.clear()
    capsys.readouterr()
    assert index() == 0
    assert "0 to embed, 0 to remove, 1 to skip" in (said := capsys.readouterr().out)
    assert "up to date, 1 skipped (reasons: " in said
    assert (embedded, (gallery_folder("holiday") / gallery_storage.STATE).read_bytes()) == ([], state)
    with monkeypatch.context() as broken:
        broken.setattr(images, "_read_address", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        load_image("scene://0/6").save(photos / "new.jpg")
        assert index() == 0
    assert index() == 0
    assert embedded == ["new.jpg"]
    assert "new.jpg" in ids(holiday())
    load_image("scene://0/5").save(photos / "bad\n1.jpg")
    assert index() == 0
    assert "bad\n1.jpg" in ids(holiday())
    assert "skipped" not in capsys.readouterr().out.rpartition("embedded")[2]


def test_what_cannot_be_read_is_listed_and_what_is_hidden_is_not(bundle: Path, photos: Path) -> None:
    for name in ("IMG_1.HEIC", ".trash/a.jpg", ".b.jpg", "c.jfif"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_bytes((photos / "a.jpg").read_bytes())
    (photos / "table.csv").write_text("image\na.jpg\nhttps://example.com/b.jpg\n")
    assert index("--model", str(bundle), "--images", f"{photos}/../{photos.name}") == 0
    assert ids(holiday()) == ["a.jpg", "b.png", "c.jfif", "inner/c.png"]
    skipped = (gallery_folder("holiday") / "skipped.csv").read_text()
    assert "IMG_1.HEIC" in skipped
    assert "a format that is not read; convert it to JPEG" in skipped
    assert index("--images", str(photos)) == 0
    assert index("--delete") == 0
    assert index("--model", str(bundle), "--images", str(photos / "table.csv")) == 0
    assert "addresses of the web are not read; download it" in (gallery_folder("holiday") / "skipped.csv").read_text()


@pytest.mark.parametrize(
    ("failing", "number", "is_told"),
    [("inner", errno.EACCES, True), ("inner", errno.ESTALE, True), (".Trash-0", errno.EACCES, False)],
)
def test_a_folder_that_cannot_be_read_is_an_error(
    bundle: Path,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    number: int,
    is_told: bool,
) -> None:
    """Its images would be removed from the gallery without a word; of hidden folders none are taken."""
    scandir = os.scandir

    def refuse(folder: str | Path) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == failing:
            raise OSError(number, os.strerror(number), str(folder))
        return scandir(folder)

    (photos / ".Trash-0").mkdir()
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        assert index() == is_told
    told = f"{photos / failing} cannot be read ({os.strerror(number)}), and its images would seem to be gone"
    assert (told in capsys.readouterr().err) == is_told
    assert "inner/c.png" in ids(holiday())


def test_a_gallery_is_deleted_and_the_images_stay(bundle: Path, photos: Path) -> None:
    assert index("--delete") == 1
    index("--model", str(bundle), "--images", str(photos))
    assert index("--delete", "--dry-run") == 0
    assert gallery_folder("holiday").is_dir()
    assert index("--delete") == 0
    assert not gallery_folder("holiday").exists()
    assert (photos / "a.jpg").is_file()
    (gallery_folder("holiday") / "parts").mkdir(parents=True)
    assert index("--delete") == 0, "of one that was never finished"
    assert not gallery_folder("holiday").exists()


@pytest.mark.parametrize("names", [["images.parquet"], ["images.parquet", "metadata.parquet"], ["digests.json"]])
def test_a_damaged_gallery_is_embedded_again(
    bundle: Path, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    assert index("--model", str(bundle), "--images", str(with_columns(photos))) == 0
    before = vectors()
    for name in names:
        (damaged,) = gallery_folder("holiday").glob(f"0*/{name}")
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(SearchError, match=rf"{names[0]} is damaged.*: index the images again: .*--name holiday"):
        holiday()
    embedded.clear()
    capsys.readouterr()
    assert index() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{names[0]} is damaged" in said
    assert "the images are embedded again" in said
    assert embedded == ["a.jpg", "b.png", "inner/c.png"]
    torch.testing.assert_close(vectors(), before)
    assert found("year >= 2020") == ["b.png"]


def test_a_gallery_that_is_updated_while_its_model_loads_is_loaded_as_it_is_then(
    bundle: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index("--model", str(bundle), "--images", str(photos))
    load_image("scene://0/7").save(photos / "new.png")

    def load(*parts: Path) -> Embedder:
        assert index() == 0
        return Embedder(*parts)

    monkeypatch.setattr(search_model, "Embedder", load)
    assert "new.png" in ids(holiday())


def test_captions_of_a_gallery_without_captions_are_refused(bundle: Path, photos: Path) -> None:
    """There are no captions: they were found, none of them, without a word."""
    index("--model", str(bundle), "--images", str(photos))
    model = holiday()
    assert model.target_of("image") == "images"
    with pytest.raises(SearchError, match="the gallery has no captions: the target can only be images"):
        model.target_of("text", "captions")


def test_thumbnails_are_shown_though_the_images_are_away(bundle: Path, photos: Path) -> None:
    index("--model", str(bundle), "--images", str(photos))
    before = SearchReplica(str(gallery_folder("holiday")), "unused")
    was_shown = before._image("a.jpg")
    load_image("scene://0/9").save(photos / "a.jpg")
    index()
    assert before._image("a.jpg") == was_shown, "of a version that is served still"
    (photos / "a.jpg").unlink()
    index()
    photos.rename(photos.with_name("away"))
    model = holiday()
    kept = set(gallery_folder("holiday").glob("thumbnails/*/*.jpg"))
    assert kept > set(model.thumbnails.values())
    assert len(kept - set(model.thumbnails.values())) == 1, "of the version before this one alone"
    replica = SearchReplica(str(gallery_folder("holiday")), "unused")
    shown = replica._image("b.png")
    assert shown == thumbnail(load_image(str(photos.with_name("away") / "b.png")))
    model.thumbnails["b.png"].unlink()
    with pytest.raises(RequestError, match="cannot be read"):
        replica._image("b.png")


def test_answers_of_a_service_name_the_version_of_its_gallery(bundle: Path, photos: Path) -> None:
    index("--model", str(bundle), "--images", str(photos))
    (version,) = (path.name for path in gallery_folder("holiday").glob("0*"))
    replica = SearchReplica(str(gallery_folder("holiday")), "unused")
    (answer,) = replica._search_texts([Search("a red ring", 1, "images")])
    assert isinstance(answer, dict)
    assert answer["model"] == asyncio.run(replica.facts())["model"] == f"holiday/{version}"
    assert replica._served == {"model": bundle.name, "gallery": "holiday", "gallery_version": version}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--images", "photos"], "--images is of your own images: give their gallery a --name"),
        (["--name", "holiday", "--set", "seed=1"], "--set of an evaluated model: give one of them"),
        (["--name", "../holiday"], "cannot name a gallery"),
    ],
)
def test_options_without_effect_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(partial(main, arguments)) == 1
    assert message in capsys.readouterr().err
