"""Mined hard negatives against a naive search, and training that reads them."""

from pathlib import Path

import pyarrow.csv
import pytest
import torch

from pipelines.config import load_config
from pipelines.kinds.adversarial import ADVERSARIAL, HardNegativesKind, HardNegativesLoss
from pipelines.kinds.inputs import SplitData
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from pipelines.stages.mining import mined
from preprocessing.captions.adversarial import read_adversarials
from preprocessing.datasets.record import Caption, Record
from preprocessing.shards import ShardReader
from tests.pipelines.tiny_bundle import write_tiny_bundle
from vse_core.similarity import unit_length

WORDS = [["a dog", "a wet dog"], ["a cat", "a dog"], ["a bird"], ["two birds", "a bird", "a red bird"]]


def test_the_nearest_captions_of_others_that_are_worded_differently() -> None:
    records = tuple(
        Record(str(image), "", "train", tuple(Caption(f"{image}#{n}", text) for n, text in enumerate(texts)))
        for image, texts in enumerate(WORDS)
    )
    torch.manual_seed(0)
    gallery = Gallery(unit_length(torch.randn(4, 2, 5)), unit_length(torch.randn(8, 5)), records)
    table = mined(gallery, 2)
    captions = [(image, text) for image, texts in enumerate(WORDS) for text in texts]
    expected = []
    for image, own in enumerate(WORDS):
        best: dict[str, float] = {}
        for (owner, text), vector in zip(captions, gallery.texts_CD, strict=True):
            if owner != image and text not in own:
                similarity = max(float(view @ vector) for view in gallery.images_BKD[image])
                best[text] = max(similarity, best.get(text, -2.0))
        expected += [(str(image), text) for text in sorted(best, key=best.__getitem__, reverse=True)[:2]]
    assert list(zip(table["image_id"].to_pylist(), table["negative"].to_pylist(), strict=True)) == expected


def test_a_table_becomes_the_wrong_captions_of_training(tmp_path: Path) -> None:
    bundle = write_tiny_bundle(tmp_path / "bundle")
    train = SplitData(ShardReader(bundle / "shards", "grid"))
    metas = list(train.reader.metas())
    table = tmp_path / "negatives.csv"
    rows = {
        "image_id": [metas[0]["image_id"]] * 2 + ["gone"],
        "negative": ["a cat", metas[0]["captions"][0]["text"], "a dog"],
    }
    pyarrow.csv.write_csv(pyarrow.table(rows), table)
    config = load_config(None, ["preset=hard_negatives", f"loss.table={table}", "vocabulary.min_count=1"])
    kind, settings = config.kind, config.training_settings.kind_settings
    assert isinstance(kind, HardNegativesKind)
    assert isinstance(settings.loss, HardNegativesLoss)
    assert not config.kind.reads_graphs
    encoder, facts = kind.prepare(settings, train, train, tmp_path)
    count = sum(len(meta["captions"]) for meta in metas)
    own = len(metas[0]["captions"])
    assert (facts["hard_negatives"], facts["captions_without_hard_negatives"]) == (own, count - own)
    assert {entry.texts for entry in read_adversarials(tmp_path / ADVERSARIAL)} == {("a cat",), ()}
    inputs = kind.train_inputs(settings, train, encoder, tmp_path)
    assert inputs is not None
    found = inputs(torch.tensor([0, own, 1]).numpy(), 0, 5)
    assert found["owners_P"].tolist() == [0, 2]
    assert len(found["tokens_PL"]) == len(found["lengths_P"]) == 2
    table.write_text("image_id,negative\ngone,a dog\n")
    with pytest.raises(StageError, match="none of its images is a training image"):
        kind.prepare(settings, train, train, tmp_path)
