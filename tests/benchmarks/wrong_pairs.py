"""Training on wrong pairs: 2,000 photographs of Flickr8k, of whose captions a part belongs to other photographs.

Two small towers, so that many trainings cost minutes: 256 principal components of the mean of an image's cells, and the
mean of learned word vectors, each through a linear layer. Each share of wrong captions is trained on, as many epochs
each, with the triplet loss, the sigmoid loss and the complementary loss; with the first also without the captions that
fit their image worst after a first training (`training.drop_worst`), and, as the best to be had, on the right captions
alone. A training's result is its best epoch on the development images.

Run: python pipelines/extract.py --config pipelines/config/data/flickr8k.yaml --set work_dir=WORK_DIR
     python tests/benchmarks/wrong_pairs.py --work WORK_DIR
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from reader import RESULTS, machine
from torch import Tensor, nn

from pipelines.config import load_config
from pipelines.stages.extract import plan as extract
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.pair_fit import own_similarities
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.losses import GlobalLoss, build_loss
from vse_core.similarity import unit_length

CONFIG = Path(__file__).resolve().parents[2] / "pipelines/config/data/flickr8k.yaml"
IMAGES, EPOCHS, BATCH, WIDTH, RATE, DECAY, DROPPED = 2000, 8, 128, 256, 0.004, 0.3, 0.4
EARLY = 2  # epochs of all negatives, or of full trust in every pair
LOSSES: dict[str, list[dict[str, Any]]] = {
    "triplet": [{"name": "triplet", "negatives": kind} for kind in ("all", "hardest")],
    "sigmoid": [{"name": "sigmoid", "learned": True}],
    "complementary": [{"name": "complementary", "trusting": trusting} for trusting in (True, False)],
}
"""The loss of the first epochs, and of those after."""

Indices = npt.NDArray[np.int64]


class Split:
    """Mean features (B, F) of images, their captions as tokens, and the image of each caption."""

    def __init__(self, directory: Path, member: str) -> None:
        reader = ShardReader(directory, member)
        means = [reader.features(image).astype(np.float32).mean(axis=0) for image in range(len(reader))]
        self.images_BF = torch.from_numpy(np.stack(means))
        self.texts = list(reader.texts())
        self.counts_B = torch.from_numpy(reader.caption_counts)
        self.owners_C = np.repeat(np.arange(len(reader)), reader.caption_counts)

    def reduce(self, mean_F: Tensor, axes_FW: Tensor, scale: float) -> None:
        """Replace the features by their principal components."""
        self.images_BF = (self.images_BF - mean_F) @ axes_FW / scale

    def first(self, images: int) -> Split:
        """Keep the first images alone."""
        kept = self.__class__.__new__(self.__class__)
        kept.images_BF, kept.counts_B = self.images_BF[:images], self.counts_B[:images]
        kept.owners_C = self.owners_C[self.owners_C < images]
        kept.texts = self.texts[: len(kept.owners_C)]
        return kept


class Towers(nn.Module):
    """Two linear towers; the temperature and bias of a loss are learned with them."""

    def __init__(self, features: int, words: int) -> None:
        super().__init__()
        self.image = nn.Linear(features, WIDTH)
        self.words = nn.EmbeddingBag(words, WIDTH)
        self.text = nn.Linear(WIDTH, WIDTH)

    def images(self, images_BF: Tensor) -> Tensor:
        """Embed images: (B, 1, D)."""
        return unit_length(self.image(nn.functional.dropout(images_BF, 0.3, self.training))).unsqueeze(1)

    def texts(self, tokens: list[Tensor]) -> Tensor:
        """Embed captions: (C, D)."""
        starts = torch.tensor([0, *(len(each) for each in tokens[:-1])]).cumsum(0)
        return unit_length(self.text(self.words(torch.cat(tokens), starts)))


def exchanged(owners_C: Indices, share: float, rng: np.random.Generator) -> Indices:
    """Return the caption that stands in for each caption: for a share of them one of another image."""
    chosen = rng.choice(len(owners_C), round(share * len(owners_C)), replace=False)
    others = rng.permutation(chosen)
    while len(places := np.flatnonzero(owners_C[others] == owners_C[chosen])):
        mixed = np.union1d(places, rng.integers(len(chosen), size=len(places)))
        others[mixed] = rng.permutation(others[mixed])
    source_C = np.arange(len(owners_C))
    source_C[chosen] = others
    return source_C


class Run:
    """Trainings on one share of wrong captions, with one seed."""

    def __init__(self, train: Split, dev: Split, share: float, seed: int) -> None:
        self.train, self.dev, self.seed = train, dev, seed
        source_C = exchanged(train.owners_C, share, np.random.default_rng(seed))
        self.is_wrong_C = train.owners_C[source_C] != train.owners_C
        texts = [train.texts[caption] for caption in source_C]
        self.vocabulary = Vocabulary.build(texts, 4)
        self.tokens, self.dev_tokens = ([torch.tensor(self.vocabulary.encode(text)) for text in each]
                                        for each in (texts, dev.texts))  # fmt: skip
        self.owners_C, self.images_BF = torch.from_numpy(train.owners_C), train.images_BF

    def fit(self, loss: str, kept: Indices) -> tuple[float, Tensor]:
        """Train on some captions; returns the best RSUM, and the similarities (C,) of all pairs at that epoch."""
        torch.manual_seed(self.seed)
        model = Towers(self.images_BF.shape[1], len(self.vocabulary))
        losses = [build_loss(**options, mask_same_image=True) for options in LOSSES[loss]]
        learned = [*model.parameters(), *losses[-1].parameters()]
        optimizer = torch.optim.AdamW(learned, RATE, weight_decay=DECAY)
        sampler = BatchSampler(len(self.tokens), BATCH, self.seed, kept=kept)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * sampler.steps_per_epoch)
        best, similarities_C = -1.0, torch.empty(0)
        for epoch in range(EPOCHS):
            model.train()
            for step in range(sampler.steps_per_epoch):
                self._step(model, losses[0 if epoch < EARLY else -1], optimizer, sampler.batch(epoch, step))
                schedule.step()
            model.eval()
            with torch.inference_mode():
                images, texts = model.images(self.dev.images_BF), model.texts(self.dev_tokens)
                rsum = evaluate_retrieval(images, texts, self.dev.counts_B.tolist()).rsum
                if rsum > best:
                    pairs = model.images(self.images_BF), model.texts(self.tokens)
                    best, similarities_C = rsum, own_similarities(*pairs, self.train.counts_B)
        return best, similarities_C

    def _step(self, model: Towers, loss: GlobalLoss, optimizer: torch.optim.Optimizer, captions: Indices) -> None:
        owners_B = self.owners_C[captions]
        total = loss(
            model.images(self.images_BF[owners_B]), model.texts([self.tokens[c] for c in captions]), owners_B
        ).total
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], 2.0)
        optimizer.step()

    def results(self) -> dict[str, dict[str, float]]:
        """Train in all ways."""
        everything, right, found = np.arange(len(self.tokens)), np.flatnonzero(~self.is_wrong_C), {}
        for loss in LOSSES:
            rsum, similarities_C = self.fit(loss, everything)
            found[loss] = {"rsum": rsum}
            if loss != "triplet":
                continue
            kept = similarities_C.argsort(descending=True, stable=True)[: round((1 - DROPPED) * len(everything))]
            kept = np.sort(kept.numpy())
            wrong = float(self.is_wrong_C[kept].mean())
            found[f"{loss}, drop_worst"] = {"rsum": self.fit(loss, kept)[0], "wrong_kept": wrong}
            found[f"{loss}, oracle"] = {"rsum": self.fit(loss, right)[0]}
        return found


def main() -> None:
    """Train what the output lacks, and write it after each share and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="work_dir with the features of flickr8k.yaml")
    parser.add_argument("--output", type=Path, default=RESULTS / "wrong_pairs.json", help="JSON file of the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.4, 0.0, 0.2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = load_config(CONFIG, [f"work_dir={arguments.work}"])
    outputs = extract.plan(config, {}).outputs
    train, dev = (Split(outputs[split], config.features.member) for split in ("train", "dev"))
    centred_BF = train.images_BF - train.images_BF.mean(dim=0)
    variances_F, axes_FF = torch.linalg.eigh(centred_BF.T @ centred_BF / len(centred_BF))
    axes = train.images_BF.mean(dim=0), axes_FF[:, -WIDTH:], float(variances_F[-WIDTH:].mean().sqrt())
    for split in (train, dev):
        split.reduce(*axes)
    rows = json.loads(arguments.output.read_text())["rows"] if arguments.output.is_file() else []
    for share in arguments.shares:
        for seed in arguments.seeds:
            if any((row["share"], row["seed"]) == (share, seed) for row in rows):
                continue
            began = time.process_time()
            results = Run(train.first(IMAGES), dev, share, seed).results()
            seconds = round(time.process_time() - began, 1)
            rows.append({"share": share, "seed": seed, "seconds": seconds, "trainings": results})
            print(time.strftime("%H:%M:%S"), json.dumps(rows[-1]), flush=True)
            command = shlex.join(["python", *sys.argv])
            write_json_atomic(arguments.output, {"command": command, "machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
