"""Time that a training step waits for data: the loop with its loader against the same steps on one batch in memory.

Run: python tests/benchmarks/training.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from reader import BATCH, RESULTS, make_shards, origin

from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import Batch
from preprocessing.loading.image_source import FeatureSource
from preprocessing.loading.loader import TrainLoader
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

ROWS, WIDTH, EMBED_DIM = 49, 1280, 512


class Run:
    """VSE-infinity on 49 x 1280 grids, D = 512, B = 128, with a BiGRU: the Flickr8k configuration."""

    def __init__(self, vocabulary_size: int) -> None:
        torch.manual_seed(0)
        image = {"pooling": {"name": "gpo"}, "mlp": True}
        self.model = build_model(
            WIDTH, vocabulary_size, EMBED_DIM, image, {"pooling": {"name": "gpo"}, "word_dim": 300}
        )
        self.loss = build_loss("triplet", negatives="all")
        self.optimizer = build_optimizer(self.model, 5e-4, 0.01)

    def step(self, batch: Batch) -> None:
        """One optimiser step."""
        inputs = (batch.images, batch.lengths_or_mask, batch.tokens_BL, batch.token_lengths_B)
        share = LocalBatch(inputs, batch.image_indices_B, [len(batch)])
        training_step(self.model, self.loss, self.optimizer, [share], 2.0)


def measure(directory: Path, images: int, rounds: int, steps: int) -> dict[str, Any]:
    """Alternate rounds of ``steps`` steps with the loader and on one batch at hand; medians over the rounds."""
    reader = ShardReader(directory, "grid")
    vocabulary = Vocabulary.build((reader.meta(image)["captions"][0]["text"] for image in range(images)), min_count=1)
    source = FeatureSource(reader, 0, "region")
    tokens = TokenTable.encode(reader.texts(), vocabulary)
    loader = TrainLoader(reader, source, tokens, vocabulary, BatchSampler(images, BATCH, 0), 0, 1, 0, True)
    run, at_hand = Run(len(vocabulary)), loader.batch(0, 0)
    with_loader, without, shares = [], [], []
    for epoch in range(rounds + 1):
        batches, waited = loader.epoch(epoch), loader.wait_seconds
        began = time.perf_counter()
        for _ in range(steps):
            run.step(next(batches))
        seconds = time.perf_counter() - began
        share = (loader.wait_seconds - waited) / seconds
        batches.close()  # type: ignore[attr-defined]
        began = time.perf_counter()
        for _ in range(steps):
            run.step(at_hand)
        if epoch:  # the first round warms caches and imports
            with_loader.append(seconds / steps)
            shares.append(share)
            without.append((time.perf_counter() - began) / steps)
    return {
        "seconds_per_step": round(statistics.median(with_loader), 4),
        "seconds_per_step_batch_at_hand": round(statistics.median(without), 4),
        "ratio": round(statistics.median(with_loader) / statistics.median(without), 4),
        "share_waiting_for_data": round(statistics.median(shares), 5),
        "samples_per_second": round(BATCH / statistics.median(with_loader), 1),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "training.json", help="JSON file for the result")
    parser.add_argument("--images", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12, help="steps a round")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result = origin()
    result |= {"threads": arguments.threads, "features": f"{ROWS}x{WIDTH}", "embed_dim": EMBED_DIM, "batch": BATCH}
    with tempfile.TemporaryDirectory() as temporary:
        make_shards(Path(temporary), ROWS, WIDTH, arguments.images)
        result |= measure(Path(temporary), arguments.images, arguments.rounds, arguments.steps)
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
