"""The bank is a sample of the training split; the temperature is learned, or the best on the split of selection."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.config import load_config
from pipelines.evaluation import hub_correction
from pipelines.evaluation.hub_correction import TEMPERATURES, UncorrectedError, embed_bank, find_correction
from pipelines.inference.learned_values import write_learned_values
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.kinds.inputs import SplitPaths
from pipelines.retrieval.gallery import Gallery, build_gallery
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from vse_core.digests import write_digests
from vse_core.models import build_model, load_model

WORDS = ["a", "red", "blue", "green", "ring", "square", "circle", "dog", "runs", "sits"]


class Fitted:
    """A model, a training split of 12 images in three shards, and a gallery of another split."""

    def __init__(self, folder: Path) -> None:
        self.config = load_config(None, [f"work_dir={folder}"])
        self.model, self.train = folder / "model", folder / "train"
        self.model.mkdir()
        vocabulary = Vocabulary.build(WORDS * 2, min_count=1)
        torch.manual_seed(0)
        text = {"pooling": {"name": "mean"}, "word_dim": 6}
        build_model(5, len(vocabulary), 8, {"pooling": {"name": "mean"}, "mlp": False}, text).save(self.model)
        vocabulary.save(self.model / vocabulary.FILE)
        self.rng = np.random.default_rng(0)
        for shard in range(3):
            self.write(self.train, shard, 4)
        self.write(folder / "dev", 0, 9)
        self.texts = TextEmbedder(load_model(self.model), self.model)
        dev = ShardReader(folder / "dev", "grid")
        self.gallery = build_gallery(self.texts.model, dev, self.texts.caption_encoder, "")

    def write(self, folder: Path, shard: int, images: int) -> None:
        folder.mkdir(exist_ok=True)
        samples = []
        for number in range(images):
            texts = [" ".join(self.rng.choice(WORDS, 4)) for _ in range(2)]
            captions = [{"caption_id": str(place), "text": text} for place, text in enumerate(texts)]
            meta = {"image_id": f"{shard}-{number}", "image": "x.jpg", "split": folder.name, "captions": captions}
            features = self.rng.normal(size=(3, 5)).astype(np.float16)
            samples.append(Sample(f"{number:08d}", {"grid": features}, meta))
        write_shard(folder / f"shard-{shard:05d}.tar", samples, "tiny")
        write_digests(folder)

    def find(self, *, may_choose: bool = False) -> hub_correction.Correction:
        train = SplitPaths(self.train)
        return find_correction(self.config, train, self.texts, self.model, self.gallery, may_choose)

    def bank(self, most: int) -> tuple[Tensor, Tensor]:
        return embed_bank(self.config, SplitPaths(self.train), self.texts, self.model, most)


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fitted:
    monkeypatch.setattr(hub_correction, "FEWEST", 5)
    monkeypatch.setattr(hub_correction, "check_outputs", lambda *_: None)
    return Fitted(tmp_path)


def test_the_bank_is_a_sample_of_the_training_split(fitted: Fitted) -> None:
    write_learned_values(fitted.model, {"logit_scale": -math.log(0.06), "bias": -9.0})
    found = fitted.find()
    assert found.temperature == pytest.approx(0.06)
    assert found.source == "learned in training"
    split = build_gallery(fitted.texts.model, ShardReader(fitted.train, "grid"), fitted.texts.caption_encoder, "")
    torch.testing.assert_close(found.images_MKD, split.images_BKD, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.texts_MD, split.texts_CD, atol=1e-6, rtol=0)
    images_MKD, texts_MD = fitted.bank(most=7)
    assert len(images_MKD) == len(texts_MD) == 7
    near = torch.cdist(images_MKD[:, 0], split.images_BKD[:, 0])
    drawn = near.argmin(dim=1).tolist()
    assert near.amin(dim=1).max() < 1e-5
    assert drawn == sorted(set(drawn))
    own = split.texts_CD[[2 * image + c for image in drawn for c in range(2)]]
    assert torch.cdist(texts_MD, own).amin(dim=1).max() < 1e-5, "captions are of the drawn images"
    assert torch.equal(fitted.bank(most=7)[1], texts_MD), "the same each time"


def test_what_a_loss_learns_of_its_own_is_no_temperature(fitted: Fitted) -> None:
    """A plugin's loss may learn other parameters than a logit scale."""
    write_learned_values(fitted.model, {"scale": 5.0, "shift": 5.0})
    assert fitted.find(may_choose=True).source == "chosen on the split dev"


def test_a_temperature_is_chosen_on_the_split_of_selection_alone(fitted: Fitted) -> None:
    with pytest.raises(UncorrectedError, match="no learned temperature, and none is chosen"):
        fitted.find()
    found = fitted.find(may_choose=True)
    assert found.source == "chosen on the split dev"

    def rsum(temperature: float) -> float:
        other = replace(found, temperature=temperature)
        biases = other.biases(fitted.gallery.images_BKD, fitted.gallery.texts_CD)
        sims_BC = fitted.gallery.images_BKD[:, 0] @ fitted.gallery.texts_CD.T
        of_images, of_captions = sims_BC - biases.texts_C, (sims_BC - biases.images_B.unsqueeze(1)).T
        total = 0.0
        for image, row in enumerate(of_images):
            rank = min(int((row > row[2 * image + c]).sum()) for c in range(2))
            total += sum(100 * (rank < k) for k in (1, 5, 10)) / len(of_images)
        for caption, row in enumerate(of_captions):
            rank = int((row > row[caption // 2]).sum())
            total += sum(100 * (rank < k) for k in (1, 5, 10)) / len(of_captions)
        return total

    assert rsum(found.temperature) == pytest.approx(max(map(rsum, TEMPERATURES)))


def test_a_small_training_split_corrects_nothing(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_correction, "FEWEST", 13)
    with pytest.raises(UncorrectedError, match="'train' has 12 images and 24 captions, fewer than 13"):
        fitted.find(may_choose=True)


def test_a_split_is_not_corrected_by_itself(fitted: Fitted) -> None:
    dataset = fitted.config.dataset.model_copy(update={"eval_split": fitted.config.dataset.train_split})
    fitted.config = fitted.config.model_copy(update={"dataset": dataset})
    with pytest.raises(UncorrectedError, match="the bank would be of the same split 'train'"):
        fitted.find(may_choose=True)


def test_a_registered_model_has_its_own(fitted: Fitted) -> None:
    kept = hub_correction.Correction(torch.rand(3, 1, 8).half().float(), torch.rand(4, 8).half().float(), 0.3, "kept")
    kept.save(fitted.model.parent / "correction")
    found = fitted.find()
    assert (found.temperature, found.source) == (0.3, "kept")
    assert torch.equal(found.texts_MD, kept.texts_MD)


def test_outputs_that_are_compared_pair_by_pair_have_no_hubs(fitted: Fitted) -> None:
    class Compared(Gallery):
        has_embeddings = False

    fitted.gallery = Compared(fitted.gallery.images, fitted.gallery.texts, fitted.gallery.records)
    with pytest.raises(UncorrectedError, match="no embeddings"):
        fitted.find()
