"""Photographs of published features: named by a JSON file, drawn in sheets, and asked for where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipelines.config import ConfigError, load_config
from pipelines.config.datasets import PrecomputedDataset
from pipelines.retrieval.contact_sheet import contact_sheet_png
from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.photographs import require_photographs, with_photographs
from pipelines.retrieval.sheet_rows import image_to_text_rows
from pipelines.runtime.stage import StageError
from preprocessing.datasets import Caption, DatasetError, Record


@pytest.fixture
def gallery() -> Gallery:
    records = tuple(
        Record(str(at), f"/f30k/precomp/dev_ims.npy#{at}", "dev", (Caption(f"{at}", "a"),)) for at in (4, 7)
    )
    return Gallery(torch.eye(2).unsqueeze(1), torch.eye(2), records)


@pytest.fixture
def dataset(tmp_path: Path) -> PrecomputedDataset:
    """Two red photographs, of which the file next to the features' folder names one."""
    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (40, 40), "red").save(tmp_path / "photos" / name)
    (tmp_path / "id_mapping.json").write_text(json.dumps({"4": "a.jpg"}))
    return PrecomputedDataset(format="precomputed", root=tmp_path / "precomp", images=str(tmp_path / "photos"))


def test_photographs_take_the_place_of_rows_of_features(
    gallery: Gallery, dataset: PrecomputedDataset, tmp_path: Path
) -> None:
    shown = with_photographs(gallery, dataset)
    uris = [record.image_uri for record in shown.records]
    assert uris == [str(tmp_path / "photos" / "a.jpg"), gallery.records[1].image_uri]
    require_photographs("m", reversed(uris))

    def red(drawn: Gallery) -> int:
        pixels = np.asarray(contact_sheet_png("sheet", image_to_text_rows(drawn))).astype(int)
        return int(((pixels[..., 0] > 240) & (pixels[..., 1] < 30)).sum())

    assert red(shown) > 10_000 > red(gallery) == 0
    without = dataset.model_copy(update={"images": None})
    assert with_photographs(gallery, without) is gallery
    assert dataset.options() == without.options() == {"root": str(tmp_path / "precomp")}


def test_a_figure_without_images_is_refused(gallery: Gallery, dataset: PrecomputedDataset, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"^m: none of the images can be drawn \(/f30k.*#7: .*dataset\.images"):
        require_photographs("m", (record.image_uri for record in gallery.records))
    (tmp_path / "id_mapping.json").write_text(json.dumps({"4": "../outside.jpg"}))
    with pytest.raises(DatasetError, match=r"id_mapping\.json, 4: image: the name '\.\./outside\.jpg'"):
        with_photographs(gallery, dataset)
    with pytest.raises(ConfigError, match="id_mapping: has no effect without images"):
        load_config(None, ["dataset={format: precomputed, root: /x, id_mapping: /y}", "features.extractor=precomputed"])
