"""Speed of reading samples from shards: our random access against webdataset on the same files, in one run.

Run: python tests/benchmarks/reader.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.image_source import FeatureSource
from preprocessing.loading.loader import TrainLoader
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_json_atomic

ROWS, WIDTH = 49, 1280
RESULTS = Path(__file__).with_name("results")
SHARD_SIZE = 500
BATCH = 128
WORDS = ["a", "man", "woman", "dog", "in", "red", "shirt", "runs", "on", "the", "grass", "near", "water", "with", "two"]

Way = Callable[[], int]


def make_shards(directory: Path, rows: int, width: int, images: int, shard_size: int = SHARD_SIZE) -> None:
    """Random features with one caption each, so that an epoch of captions is an epoch of images."""
    rng = np.random.default_rng(0)

    def samples(first: int, count: int) -> Iterator[Sample]:
        for number in range(first, first + count):
            features = rng.standard_normal((rows, width), dtype=np.float32).astype(np.float16)
            text = " ".join(rng.choice(WORDS, 11))
            captions = [{"caption_id": f"{number}#0", "text": text}]
            meta = {"image_id": str(number), "image": f"{number}.jpg", "split": "train", "captions": captions}
            yield Sample(f"{number:08d}", {"grid": features}, meta)

    for shard, first in enumerate(range(0, images, shard_size)):
        chunk = samples(first, min(shard_size, images - first))
        write_shard(directory / f"shard-{shard:05d}.tar", chunk, "benchmark")


def webdataset_decode(directory: Path) -> int:
    """Read the shards as a user of webdataset does."""
    import webdataset

    urls = [str(path) for path in sorted(directory.glob("*.tar"))]
    return sum(sample["grid.npy"].shape[0] > 0 for sample in webdataset.WebDataset(urls, shardshuffle=False).decode())


class Epochs:
    """Whole shuffled epochs of a loader, a new one each time."""

    def __init__(self, loader: TrainLoader) -> None:
        self._loader = loader
        self._epoch = 0

    def __call__(self) -> int:
        self._epoch += 1
        return sum(len(batch) for batch in self._loader.epoch(self._epoch))


def ways_of_reading(directory: Path, images: int) -> dict[str, Way]:
    """All that is compared, by name; each returns the number of samples it read."""
    reader = ShardReader(directory, "grid")
    vocabulary = Vocabulary.build((reader.meta(image)["captions"][0]["text"] for image in range(images)), min_count=1)
    sampler = BatchSampler(images, BATCH, seed=0)
    tokens = TokenTable.encode(reader.texts(), vocabulary)

    def loader(is_augmented: bool, verify: bool = False, threads: int = 1) -> Epochs:
        read = ShardReader(directory, "grid", verify=verify, index=reader.index)
        images = FeatureSource(read, 0, "grid" if is_augmented else "none")
        return Epochs(TrainLoader(read, images, tokens, vocabulary, sampler, 0, 1, 0, is_augmented, threads=threads))

    return {
        "sequential webdataset": lambda: webdataset_decode(directory),
        "random, TrainLoader": loader(False),
        "random, TrainLoader, augmented": loader(True),
        "random, TrainLoader, augmented, 2 threads": loader(True, threads=2),
        "random, TrainLoader, augmented, 4 threads": loader(True, threads=4),
        # The first epoch of a process maps the shards, and compares each sample once.
        "random, TrainLoader, augmented, first epoch": lambda: loader(True)(),
        "random, TrainLoader, augmented, first epoch, every sample compared": lambda: loader(True, verify=True)(),
    }


def measure(ways: dict[str, Way], images: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Samples a second of each way: medians over rounds that run every way once."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            count = way()
            seconds = time.perf_counter() - began
            if count != images:
                raise RuntimeError(f"{name} read {count} samples of {images}")
            if repetition:  # the first round warms the page cache and the imports
                rates[name].append(count / seconds)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return {
        name: {
            "samples_per_second": round(middle[name], 1),
            "lowest": round(min(values), 1),
            "highest": round(max(values), 1),
            "times_webdataset": round(middle[name] / middle["sequential webdataset"], 3),
        }
        for name, values in rates.items()
    }


def origin() -> dict[str, Any]:
    """Return the command and the machine of the figures."""
    return {"command": shlex.join(["python", *sys.argv]), "machine": machine()}


def machine() -> dict[str, Any]:
    """Describe the machine and the data of the figures."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "nice": os.nice(0),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "versions": {name: version(name) for name in ("numpy", "pillow", "ray", "torch", "transformers", "webdataset")},
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "reader.json", help="JSON file for the result")
    parser.add_argument("--images", type=int, default=2500, help="images that are read")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = origin()
    result |= {"images": arguments.images, "repetitions": arguments.repetitions, "batch": BATCH, "page_cache": "warm"}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        make_shards(directory, ROWS, WIDTH, arguments.images)
        ways = ways_of_reading(directory, arguments.images)
        result[f"grid {ROWS}x{WIDTH}"] = {"ways": measure(ways, arguments.images, arguments.repetitions)}
    result["machine_after"] = machine()
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
