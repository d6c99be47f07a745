"""Photographs of published features: named by a JSON file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pipelines.config.datasets import PrecomputedDataset
from pipelines.retrieval.gallery import Gallery, with_photographs
from preprocessing.datasets import Caption, DatasetError, Record


@pytest.fixture
def gallery() -> Gallery:
    records = tuple(
        Record(str(at), f"/f30k/precomp/dev_ims.npy#{at}", "dev", (Caption(f"{at}", "a"),)) for at in (4, 7)
    )
    return Gallery(torch.eye(2).unsqueeze(1), torch.eye(2), records)


@pytest.fixture
def dataset(tmp_path: Path) -> PrecomputedDataset:
    """Published features next to a folder of photographs, and a file that names one of them."""
    (tmp_path / "id_mapping.json").write_text(json.dumps({"4": "a.jpg"}))
    return PrecomputedDataset(format="precomputed", root=tmp_path / "precomp", images=str(tmp_path / "photos"))


def test_photographs_take_the_place_of_rows_of_features(
    gallery: Gallery, dataset: PrecomputedDataset, tmp_path: Path
) -> None:
    shown = with_photographs(gallery, dataset)
    uris = [record.image_uri for record in shown.records]
    assert uris == [str(tmp_path / "photos" / "a.jpg"), gallery.records[1].image_uri]
    without = dataset.model_copy(update={"images": None})
    assert with_photographs(gallery, without).records == gallery.records
    assert dataset.options() == without.options() == {"root": str(tmp_path / "precomp")}


def test_a_name_that_leads_out_is_refused(gallery: Gallery, dataset: PrecomputedDataset, tmp_path: Path) -> None:
    (tmp_path / "id_mapping.json").write_text(json.dumps({"4": "../outside.jpg"}))
    with pytest.raises(DatasetError, match=r"id_mapping\.json, 4: image: the name '\.\./outside\.jpg'"):
        with_photographs(gallery, dataset)
