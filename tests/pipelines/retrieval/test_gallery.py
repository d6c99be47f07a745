"""The gallery: built from shards in their order, saved and read back, refused where it does not fit."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from pipelines.config.datasets import TableDataset
from pipelines.retrieval.gallery import (
    ITEMS,
    METADATA,
    Biases,
    Gallery,
    GalleryError,
    build_gallery,
    records_of,
    with_columns,
)
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import Caption, Record
from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from vse_core.models import build_model


def small_gallery() -> Gallery:
    records = (
        Record("a", "/x/a.jpg", "dev", (Caption("a#0", "ein Hund läuft"), Caption("a#1", "a dog"))),
        Record("b", "/x/b.jpg", "dev", (Caption("b#0", 'quotes " and \\'),)),
    )
    return Gallery(torch.rand(2, 3, 4), torch.rand(3, 4), records)


def test_gallery_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    gallery = small_gallery()
    gallery.save(tmp_path / "new")
    loaded = Gallery.load(tmp_path / "new")
    assert torch.equal(loaded.images_BKD, gallery.images_BKD)
    assert torch.equal(loaded.texts_CD, gallery.texts_CD)
    assert loaded.records == gallery.records
    assert [(image, caption.caption_id) for image, caption in loaded.captions] == [(0, "a#0"), (0, "a#1"), (1, "b#0")]


def test_columns_of_a_table_come_with_the_images(tmp_path: Path) -> None:
    """Those of the table that the split is a share of; of captions in any order and with an image more."""
    rows = ["datei;text;year;tags", "b.jpg;x;2021;é", "c.jpg;x;2022;", "a.jpg;y;;t", "b.jpg;z;1;u"]
    (tmp_path / "t.csv").write_bytes("\n".join(rows).encode("cp1252"))
    tables = {"train": str(tmp_path / "t.csv"), "dev": "9 %"}
    options = {"image_column": "datei", "caption_column": "text", "tables": tables}
    dataset = TableDataset.model_validate({"format": "table", **options})
    records = tuple(Record(f"{name}.jpg", f"/x/{name}.jpg", "dev", ()) for name in "ab")
    gallery = with_columns(Gallery(torch.rand(2, 1, 4), torch.rand(0, 4), records), dataset)
    gallery.save(tmp_path / "new")
    loaded = Gallery.load(tmp_path / "new")
    assert loaded.metadata.column_names == ["image", "year", "tags"]
    assert [loaded.columns_of(image) for image in range(2)] == [{"tags": "t"}, {"year": 2021, "tags": "é"}]
    assert loaded.first(1).columns_of(0) == {"tags": "t"}
    (tmp_path / "new" / METADATA).unlink()
    assert Gallery.load(tmp_path / "new").columns_of(0) == {}
    bare = dataset.model_copy(update={"tables": {"dev": str(tmp_path / "bare.csv")}})
    (tmp_path / "bare.csv").write_text("datei,text\na.jpg,x\n")
    assert with_columns(small_gallery(), bare).columns is None


def test_a_further_column_named_image_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It took the place of the ids, and the images lost all columns."""
    (tmp_path / "t.csv").write_text("file,image,caption,year\na,1,x,2020\nb,2,y,2021\n")
    options = {"image_column": "file", "tables": {"dev": str(tmp_path / "t.csv")}}
    dataset = TableDataset.model_validate({"format": "table", **options})
    gallery = with_columns(small_gallery(), dataset)
    assert gallery.columns is not None
    assert gallery.columns.to_pydict() == {"image": ["a", "b"], "year": [2020, 2021]}
    assert "columns left out of the gallery, as no condition can name their values: image\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "caption", ['["y", "z"]', '"half a \\ud83d character"', "null", '"y"'], ids=["list", "surrogate", "none", "text"]
)
def test_captions_and_columns_of_no_type_do_not_end_the_evaluation(
    caption: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dataset reader takes such JSON lines, so they may not fail after the training."""
    lines = [
        '{"image": "a", "caption": "x", "year": 2020, "size": 3, "\u00e4": "1", "tags": ["t"], "taken": "2020-05-01"}',
        f'{{"image": "b", "caption": {caption}, "year": "n/a", "size": 0.5, "tags": [], "more": {{"k": 1}}}}',
        '{"image": "half \\ud83d", "caption": "z", "more": {"k": "one"}}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = TableDataset.model_validate({"format": "table", "tables": {"dev": str(tmp_path / "t.jsonl")}})
    gallery = with_columns(small_gallery(), dataset)
    first = {"size": 3.0, "\u00e4": "1", "tags": ["t"], "taken": "2020-05-01 00:00:00"}
    assert [gallery.columns_of(image) for image in range(2)] == [first, {"size": 0.5, "tags": []}]
    assert "as no condition can name their values: year, more\n" in capsys.readouterr().out


def test_columns_of_types_that_python_or_arrow_has_no_values_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Views of text, as Polars may write them; lists of these and durations, which no condition can name; far dates."""
    columns = {
        "image": pa.array(["a", "b"], pa.string_view()),
        "caption": pa.array(["x", "y"], pa.string_view()),
        "place": pa.array(["here", None], pa.string_view()),
        "tags": pa.array([["t"], []], pa.list_(pa.string_view())),
        "took": pa.array([1, 2], pa.duration("s")),
        "day": pa.array([0, 253402300800], pa.timestamp("s")),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    dataset = TableDataset.model_validate({"format": "table", "tables": {"dev": str(tmp_path / "t.parquet")}})
    gallery = with_columns(small_gallery(), dataset)
    first = {"place": "here", "day": "1970-01-01 00:00:00"}
    assert [gallery.columns_of(image) for image in range(2)] == [first, {"day": "10000-01-01 00:00:00.000"}]
    assert "as no condition can name their values: tags, took\n" in capsys.readouterr().out


def test_a_row_of_megabytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"image,caption,year\na,x,2020\nb,{'long ' * 500_000},2021\n")
    dataset = TableDataset.model_validate({"format": "table", "tables": {"dev": str(tmp_path / "t.csv")}})
    assert with_columns(small_gallery(), dataset).columns_of(1) == {"year": 2021}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_of_one_name_are_left_out_and_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, columns = ["image", "caption", "year", "size", "year"], [["a", "b"], ["x", "y"], [1, 2], [3, 4], [5, 6]]
    if name == "t.csv":
        rows = [header, *zip(*columns, strict=True)]
        (tmp_path / name).write_text("\n".join(",".join(map(str, row)) for row in rows))
    else:
        parquet.write_table(pa.table([pa.array(column) for column in columns], names=header), tmp_path / name)
    dataset = TableDataset.model_validate({"format": "table", "tables": {"dev": str(tmp_path / name)}})
    gallery = with_columns(small_gallery(), dataset)
    assert [gallery.columns_of(image) for image in range(2)] == [{"size": 3}, {"size": 4}]
    assert "as no condition can name their values: year\n" in capsys.readouterr().out


def test_gallery_refuses_what_does_not_fit() -> None:
    with pytest.raises(GalleryError, match="1 records with 2 captions do not fit 2 image and 3 caption"):
        dataclasses.replace(small_gallery(), records=small_gallery().records[:1])


def test_a_gallery_takes_the_order_of_another_reader_of_the_same_images() -> None:
    """The same two images in another order, with other caption ids, the captions turned round and punctuated."""
    gallery = small_gallery()
    other = Gallery(
        torch.zeros(2, 1, 2),
        torch.zeros(3, 2),
        (
            Record("b", "rows.npy#0", "dev", (Caption("dev#0", "Quotes and ."),)),
            Record("a", "rows.npy#1", "dev", (Caption("dev#1", "A dog."), Caption("dev#2", "Ein Hund läuft"))),
        ),
    )
    biases = Biases(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4, 0.5]))
    found = dataclasses.replace(gallery, biases=biases).in_order_of(other)
    assert torch.equal(found.images_BKD, gallery.images_BKD[[1, 0]])
    assert found.biases is not None
    assert torch.equal(found.biases.images_B, biases.images_B[[1, 0]])
    assert torch.equal(found.biases.texts_C, biases.texts_C[[2, 1, 0]])
    assert torch.equal(found.texts_CD, gallery.texts_CD[[2, 1, 0]])
    assert found.records == other.records


def test_captions_of_an_image_that_say_the_same_are_told_apart_by_nothing() -> None:
    twice = (Record("a", "", "dev", (Caption("0", "a dog"), Caption("1", "the cat"), Caption("2", "a dog"))),)
    gallery = Gallery(torch.rand(1, 1, 4), torch.rand(3, 4), twice)
    turned = (Record("a", "", "dev", (Caption("0", "a dog"), Caption("1", "a dog"), Caption("2", "the cat"))),)
    found = gallery.in_order_of(Gallery(torch.rand(1, 1, 4), torch.rand(3, 4), turned))
    assert torch.equal(found.texts_CD, gallery.texts_CD[[0, 2, 1]])


def test_galleries_of_other_images_or_captions_are_refused() -> None:
    gallery = small_gallery()
    fewer = Gallery(gallery.images_BKD[:1], gallery.texts_CD[:2], gallery.records[:1])
    with pytest.raises(GalleryError, match="different images: 1 are only in this, such as b"):
        gallery.in_order_of(fewer)
    with pytest.raises(GalleryError, match="different images: 1 are only in the first, such as b"):
        fewer.in_order_of(gallery)
    changed = dataclasses.replace(gallery.records[0], captions=(Caption("0", "a dog"), Caption("1", "a cat")))
    other = dataclasses.replace(gallery, records=(changed, gallery.records[1]))
    with pytest.raises(GalleryError, match="different captions of image a: 2 and 2, of which 'a cat' is not in both"):
        gallery.in_order_of(other)


def test_load_names_what_is_missing(tmp_path: Path) -> None:
    small_gallery().save(tmp_path)
    (tmp_path / ITEMS).unlink()
    with pytest.raises(GalleryError, match=r"holds no gallery: items\.json is missing"):
        Gallery.load(tmp_path)


def test_an_image_elsewhere_than_in_its_folder_is_refused(tmp_path: Path) -> None:
    meta = {"image_id": "0", "image": "../secret.jpg", "split": "dev", "captions": []}
    write_shard(tmp_path / "shard-00000.tar", [Sample("0", {"grid": np.ones((1, 6), np.float16)}, meta)], "f")
    with pytest.raises(ShardError, match=r"sample 0: the name '\.\./secret\.jpg' is not a path inside its folder"):
        list(records_of(ShardReader(tmp_path, "grid"), "/data"))


def test_build_gallery_keeps_the_order_of_the_shards_and_makes_uris_absolute(tmp_path: Path) -> None:
    samples, generator = [], torch.Generator().manual_seed(0)
    for index in range(5):
        captions = [{"caption_id": f"{index}#{j}", "text": f"word{index} word{j}"} for j in range(index % 2 + 1)]
        meta = {"image_id": str(index), "image": f"sub/{index}.jpg", "split": "dev", "captions": captions}
        features = torch.rand(index + 2, 6, generator=generator).half().numpy()
        samples.append(Sample(f"{index:08d}", {"grid": features}, meta))
    write_shard(tmp_path / "shard-00000.tar", samples, "f")
    vocabulary = Vocabulary.build(["word0 word1 word2 word3 word4"], min_count=1)
    model = build_model(
        feature_dim=6,
        vocabulary_size=len(vocabulary),
        embed_dim=4,
        image={"pooling": {"name": "mean"}, "mlp": False},
        text={"pooling": {"name": "mean"}, "word_dim": 3},
    ).eval()
    gallery = build_gallery(model, ShardReader(tmp_path, "grid"), vocabulary, root="/data", batch_size=2)
    assert [record.image_uri for record in gallery.records] == [f"/data/sub/{index}.jpg" for index in range(5)]
    assert [caption.caption_id for _, caption in gallery.captions] == ["0#0", "1#0", "1#1", "2#0", "3#0", "3#1", "4#0"]
    # One image and one caption at a time, as a model knows them without batches.
    with torch.inference_mode():
        for index, sample in enumerate(samples):
            features_BNF = torch.from_numpy(sample.arrays["grid"]).unsqueeze(0)
            alone = model.encode_images(features_BNF, torch.tensor([features_BNF.shape[1]]))[0]
            torch.testing.assert_close(gallery.images_BKD[index], alone)
        for index, (_, caption) in enumerate(gallery.captions):
            tokens = torch.tensor([vocabulary.encode(caption.text)])
            torch.testing.assert_close(gallery.texts_CD[index], model.encode_texts(tokens, torch.tensor([4]))[0])
