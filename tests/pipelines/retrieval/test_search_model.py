"""Confidences of a large gallery, of which a sample stands for most items, by a softmax over all items."""

from unittest.mock import Mock

import pytest
import torch
from torch.nn.functional import normalize

from pipelines.retrieval import search_model
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.faiss_index import GalleryIndex
from pipelines.retrieval.gallery import Biases, Gallery
from pipelines.retrieval.search_model import HitConfidence, SearchModel
from preprocessing.datasets.record import Record
from vse_core.evaluation.calibration import Calibration

ITEMS, QUERIES, TEMPERATURE = 3_000, 20, 0.03


@pytest.mark.parametrize("k", [1, 2, 10, 200])
@pytest.mark.parametrize("where", ["", "not image contains 'right'"])
def test_confidences_are_of_all_items_whatever_is_returned(monkeypatch: pytest.MonkeyPatch, k: int, where: str) -> None:
    """Each query has two equally good images, which the sample (a tenth of the items) mostly lacks."""
    monkeypatch.setattr(search_model, "_SAMPLE", ITEMS // 10)
    generator = torch.Generator().manual_seed(0)
    queries_QD = normalize(torch.randn(QUERIES, 64, generator=generator), dim=1)
    images_BD = normalize(torch.randn(ITEMS, 64, generator=generator), dim=1)
    right = torch.randperm(ITEMS, generator=generator)[: 2 * QUERIES]
    images_BD[right] = normalize(queries_QD.repeat(2, 1) + 0.8 * images_BD[right], dim=1)
    biases = Biases(0.1 * torch.rand(ITEMS, generator=generator), torch.empty(0))
    names = [f"{'right' if item in right else 'other'} {item}" for item in range(ITEMS)]
    gallery = Gallery(
        images_BD.unsqueeze(1), torch.empty(0, 64), tuple(Record(name, name, "", ()) for name in names), biases
    )
    index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD, biases)
    correction = Correction(
        gallery.images_BKD, queries_QD, 0.1, "", calibrations={"images": Calibration(TEMPERATURE, 0.0)}
    )
    confidence = HitConfidence.of(gallery, index, correction)
    model = SearchModel("large", Mock(), gallery, index, correction=correction, confidence=confidence)

    shares_QB = ((queries_QD @ images_BD.T - biases.images_B) / TEMPERATURE).softmax(dim=1)
    for shares_B, hits in zip(
        shares_QB, model.find(queries_QD.unsqueeze(1), "text", k, "images", 0, where), strict=True
    ):
        expected = shares_B[[names.index(hit.item_id) for hit in hits]]
        assert len(hits) == k
        assert [hit.confidence for hit in hits] == pytest.approx(expected.tolist(), abs=1e-3)
