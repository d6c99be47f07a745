"""An exported gallery is read by other stores of vectors, whose nearest neighbours are those of a search here."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from pipelines.exports.export import main
from pipelines.exports.gallery_table import gallery_table
from pipelines.retrieval.gallery import Biases, Gallery
from pipelines.retrieval.search_model import SearchModel, load_search_model
from pipelines.runtime.cli import guarded
from preprocessing.datasets.record import Record
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_bundle

TEXTS = ["a red ring", "two small blue squares", "a star"]


def export(*arguments: object) -> int:
    return guarded(partial(main, [str(argument) for argument in arguments]))


@pytest.fixture(scope="module", params=[True, False], ids=["corrected", "uncorrected"])
def bundle(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("table") / "bundle", is_corrected=request.param)


@pytest.fixture
def file(bundle: Path, tmp_path: Path) -> Path:
    assert export("--model", bundle, "--output", tmp_path / "gallery.parquet") == 0
    return tmp_path / "gallery.parquet"


def queries(model: SearchModel) -> np.ndarray:
    """Vectors of texts, with the 1 behind them that a corrected gallery takes."""
    texts = model.embedder.embed_texts(TEXTS).numpy()
    return np.c_[texts, np.ones(len(texts), np.float32)] if model.gallery.biases else texts


def expected(model: SearchModel) -> list[list[str]]:
    return [[hit.item_id for hit in model.answer(text, "text", 4, "images").hits] for text in TEXTS]


def test_vectors_biases_ids_and_addresses_are_those_of_the_gallery(bundle: Path, file: Path) -> None:
    table, model = pyarrow.parquet.read_table(file), load_search_model(str(bundle), "unused")
    gallery = model.gallery
    images = table.filter(pa.compute.equal(table["kind"], "image"))
    assert images["id"].to_pylist() == [record.image_id for record in gallery.records]
    assert images["address"].to_pylist() == [record.image_uri for record in gallery.records]
    texts = table.slice(IMAGES)
    assert texts["id"].to_pylist() == [caption.caption_id for _, caption in gallery.captions]
    assert texts["caption"].to_pylist() == [caption.text for _, caption in gallery.captions]
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors[:IMAGES, :16], gallery.images_BKD[:, 0].numpy())
    np.testing.assert_array_equal(vectors[IMAGES:, :16], gallery.texts_CD.numpy())
    if gallery.biases:
        np.testing.assert_array_equal(vectors[:, 16], -np.concatenate([each.numpy() for each in gallery.biases]))
        np.testing.assert_array_equal(vectors[:, 16], -table["bias"].to_numpy())
    else:
        assert table["bias"].null_count == len(table)
    scores = queries(model) @ vectors[:IMAGES].T
    nearest = [[images["id"][int(place)].as_py() for place in row] for row in np.argsort(-scores)[:, :4]]
    assert nearest == expected(model)


def test_each_view_of_ones_own_images_is_a_row_with_their_columns() -> None:
    records = tuple(Record(str(number), f"/{number}.jpg", "", ()) for number in range(3))
    images_BKD = torch.nn.functional.normalize(torch.randn(3, 2, 4), dim=-1)
    gallery = Gallery(images_BKD, torch.empty(0, 4), records, Biases(torch.tensor([0.1, 0.2, 0.3]), torch.empty(0)))
    columns = {"bias_": [True, True, False], "year": [1, None, 3], "bias": ["a", "b", "c"]}
    metadata = pa.table({"image": ["0", "1", "2"], **columns})
    rows: list[dict[str, Any]] = gallery_table(replace(gallery, columns=metadata), "holiday/1").to_pylist()
    assert [(row["id"], row["view"], row["year"], row["bias__"]) for row in rows] == [
        ("0", 0, 1, "a"), ("0", 1, 1, "a"), ("1", 0, None, "b"), ("1", 1, None, "b"),
        ("2", 0, 3, "c"), ("2", 1, 3, "c"),
    ]  # fmt: skip
    for row in rows:
        assert row["bias_"] is (row["id"] != "2")
        bias = 0.1 * (int(row["id"]) + 1)
        np.testing.assert_allclose(row["vector"], [*images_BKD[int(row["id"]), row["view"]].tolist(), -bias], atol=1e-6)


def test_duckdb_finds_the_same(bundle: Path, file: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install duckdb")
    model = load_search_model(str(bundle), "unused")
    width = len(queries(model)[0])
    ask = (
        f"select id from '{file}' where kind = 'image' "
        f"order by array_inner_product(vector::float[{width}], ?::float[{width}]) desc limit 4"
    )
    found = [[row[0] for row in duckdb.execute(ask, [query.tolist()]).fetchall()] for query in queries(model)]
    assert found == expected(model)


def test_lancedb_finds_the_same(bundle: Path, file: Path, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed: pip install lancedb")
    model = load_search_model(str(bundle), "unused")
    table = lancedb.connect(tmp_path / "lance").create_table("gallery", pyarrow.parquet.read_table(file))
    found = [
        [row["id"] for row in table.search(query).distance_type("dot").where("kind = 'image'").limit(4).to_list()]
        for query in queries(model)
    ]
    assert found == expected(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "GALLERY.parquet", "--push", "a/b"], "--push uploads the folder of a model"),
        (["--output", "there.parquet"], "there already: name a new one"),
    ],
)
def test_what_has_no_effect_or_is_there_is_refused(
    bundle: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.parquet").touch()
    assert export("--model", bundle, *arguments) == 1
    assert message in capsys.readouterr().err
