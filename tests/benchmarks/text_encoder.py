"""Seconds in which a CPU reads a batch of captions of Flickr8k with MiniLM: grouped by length, and as one padded batch.

Run: python tests/benchmarks/text_encoder.py --minilm FOLDER
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
from leaderboard import CONFIGS
from reader import BATCH, RESULTS, origin
from torch import Tensor

from pipelines.config import load_config
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.datasets import build_dataset
from preprocessing.loading.batch import pad_tokens
from preprocessing.storage.atomic import write_json_atomic
from vse_core import static_shapes
from vse_core.encoders.bert import BertEncoder
from vse_core.pooling import build_pooling

WAYS: dict[str, Any] = {
    "grouped": nullcontext,
    "one padded batch": lambda: patch.object(static_shapes, "EVERYWHERE", True),
}


def seconds(encoder: BertEncoder, batch: tuple[Tensor, Tensor], trains: bool) -> float:
    """Time a batch: forward alone, or forward and backward."""
    encoder.train(trains).zero_grad()
    began = time.perf_counter()
    with torch.set_grad_enabled(trains):
        texts = encoder(*batch)
        if trains:
            texts.square()[:, 0].sum().backward()
    return time.perf_counter() - began


def main() -> None:
    """Time both ways in turns on one thread, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minilm", required=True, help="folder of MiniLM's weights")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_config(CONFIGS / "flickr8k.yaml").dataset
    images = build_dataset(dataset.format, **dataset.options()).records(dataset.train_split)
    captions = [caption.text for image in images for caption in image.captions]
    words = SubwordTokenizer.from_pretrained(arguments.minilm)
    encoder = BertEncoder(512, build_pooling("gpo", 512), weights=arguments.minilm)
    # In any order, as training draws them.
    drawn = torch.randperm(len(captions), generator=torch.Generator().manual_seed(0)).tolist()
    result: dict[str, Any] = {**origin(), "rounds": arguments.rounds, "captions": BATCH}
    for trains, label in ((True, "training"), (False, "inference")):
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for first in range(0, arguments.rounds * BATCH, BATCH):
            batch = pad_tokens([words.encode(captions[each]) for each in drawn[first : first + BATCH]], words.pad_id)
            for way, chosen in WAYS.items():
                with chosen():
                    taken[way].append(seconds(encoder, batch, trains))
        medians = {way: statistics.median(times) for way, times in taken.items()}
        faster = medians["one padded batch"] / medians["grouped"]
        result[label] = {"seconds": {way: round(median, 3) for way, median in medians.items()}}
        result[label]["times_faster"] = round(faster, 2)
        print(label, result[label], flush=True)
    write_json_atomic(RESULTS / "text_encoder.json", result)


if __name__ == "__main__":
    main()
