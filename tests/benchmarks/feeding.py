"""Extraction with a network that costs the host nothing: rate by decoding threads, and how long the network waits.

The stage's own actors and pool make shards of Flickr8k's photographs. Only the network is replaced, by one that sleeps
and is in one place of the machine at a time, as a GPU is. "decoding" is a bare loop that loads the same photographs in
as many threads and does nothing else, timed before and after each extraction: what the machine can give at that moment.
An image keeps the network longer than it takes to decode, so that a network that waits has been made to wait.
Rates are taken of the photographs as they are, of about 500 x 375 pixels or fewer, and of the same enlarged to a width
that cameras give, whose decoding is nearly all of the work.

Run: python tests/benchmarks/feeding.py
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import ray
from PIL import Image

from pipelines.runtime import cluster
from pipelines.runtime.actor_pool import map_unordered
from pipelines.stages.extract import _SHARDS_AT_ONCE, _Extraction
from preprocessing.datasets import Dataset, build_dataset
from preprocessing.extraction import shard_specs
from preprocessing.features.extractor import FeaturesNF, FileExtractor
from preprocessing.features.networks.pixels import IMAGENET, PixelsCHW, pixels_at
from preprocessing.storage import Mirror
from preprocessing.storage.atomic import write_json_atomic

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results") / "feeding.json"
BATCH, SHARD, CELLS, WIDTH = 16, 100, 49, 2048
CAMERA_WIDTH = 2048


class SleepingNetwork(FileExtractor):
    """Decodes as a grid extractor of 224 x 224 pixels does; a batch then sleeps with the machine's only network."""

    name = "grid"
    _pixels = staticmethod(pixels_at(IMAGENET, 224))

    def __init__(self, seconds: float, log: Path) -> None:
        self._seconds, self._log = seconds, log
        self._features = np.ones((CELLS, WIDTH), np.float16)

    def prepare(self, _data: bytes, image: Image.Image, /) -> PixelsCHW:
        return self._pixels(image)

    def __call__(self, items: Sequence[PixelsCHW]) -> list[FeaturesNF]:
        with self._log.open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            began = time.monotonic()
            time.sleep(self._seconds * len(items))
            log.write(f"{began} {time.monotonic()}\n")
        return [self._features] * len(items)

    def identity(self) -> dict[str, Any]:
        return {}


class SlowStorage(Mirror):
    """A mirror that takes its time for the files of a shard, as a real storage does."""

    seconds = 1.0

    def push(self, *_paths: Path) -> None:
        time.sleep(self.seconds)


class Extraction(_Extraction):
    """The stage's actor with the sleeping network."""

    def __init__(self, network: SleepingNetwork, threads: int, mirror: Mirror) -> None:
        super().__init__("grid", {}, BATCH, threads, 60.0, mirror)
        self._network = network

    def prepare(self) -> None:
        import torch

        torch.set_num_threads(self._threads)
        self._extractor = self._network


def enlarged(images: Path, names: Sequence[str], folder: Path) -> Path:
    """Write the photographs at a camera's width; return their folder."""
    folder.mkdir()
    for name in names:
        with Image.open(images / name) as image:
            size = (CAMERA_WIDTH, round(image.height * CAMERA_WIDTH / image.width))
            image.resize(size, Image.Resampling.BICUBIC).save(folder / name, quality=90)
    return folder


def decoding_rate(data: Dataset, threads: int) -> float:
    """Images a second of loading alone."""
    network, uris = SleepingNetwork(0, Path()), [record.image_uri for record in data.records("train")]
    began = time.perf_counter()
    with ThreadPool(threads) as pool:
        for _ in pool.imap_unordered(network.load, uris):
            pass
    return len(uris) / (time.perf_counter() - began)


def extract(
    data: Dataset,
    folder: Path,
    actors: int,
    threads: int,
    seconds: float,
    mirror: type[Mirror],
    at_once: int = _SHARDS_AT_ONCE,
) -> list[Any]:
    """Make the shards; return for each batch when it got the network and when it gave it back."""
    log = Path(tempfile.mkdtemp(dir=folder)) / "calls"
    network, storage = SleepingNetwork(seconds, log), mirror(log.parent)
    specs = shard_specs(data.records("train"), log.parent / "shards", SHARD, "benchmark", data.root)
    environment = {"env_vars": cluster.KEEP_MEMORY}
    actor = ray.remote(Extraction).options(num_cpus=1 / actors, max_concurrency=at_once, runtime_env=environment)
    list(map_unordered(lambda: actor.remote(network, threads, storage), actors, specs, lambda spec: f"{spec.path}"))
    return sorted(tuple(map(float, line.split())) for line in log.read_text().splitlines())


def bare_decoding(data: Dataset, threads: int) -> float:
    """Images a second of loading alone, in a process with the stage's setting of the memory allocator."""
    task = ray.remote(decoding_rate).options(num_cpus=1, runtime_env={"env_vars": cluster.KEEP_MEMORY})
    rate: float = ray.get(task.remote(data, threads))
    return rate


def rates(data: Dataset, folder: Path, threads: int) -> dict[str, float]:
    """Images a second with a network that takes no time, between two runs of bare decoding."""
    before = bare_decoding(data, threads)
    calls = extract(data, folder, 1, threads, 0.0, Mirror)
    images = sum(1 for _ in data.records("train"))
    # From the first batch's pixels to the last's: the start of the actor is left out, the ends of the shards are not.
    rate = (images - BATCH) / (calls[-1][1] - calls[0][0])
    ceiling = statistics.mean((before, bare_decoding(data, threads)))
    return {"images_per_second": rate, "decoding_images_per_second": ceiling, "ratio": rate / ceiling}


def waiting(data: Dataset, folder: Path, actors: int, mirror: type[Mirror], seconds: float, at_once: int) -> float:
    """Share of the time, from its first batch to its last, in which no batch has the network."""
    calls = extract(data, folder, actors, 2, seconds, mirror, at_once)
    return 1 - sum(end - began for began, end in calls) / (calls[-1][1] - calls[0][0])


def medians(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The median over the turns of every figure."""
    return {
        name: medians([turn[name] for turn in turns])
        if isinstance(turns[0][name], dict)
        else statistics.median(turn[name] for turn in turns)
        for name in turns[0]
    }


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VSE_DATA") or ROOT / "../shared/data"))
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=0.02, help="the network's time for an image")
    parser.add_argument("--turns", type=int, default=3, help="repetitions of everything, in turns")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    turns = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = arguments.data.resolve() / "flickr8k"
        listed, tokens = folder / "images.txt", pictures / "Flickr8k.token.txt"
        names = (pictures / "Flickr_8k.trainImages.txt").read_text().split()
        listed.write_text("\n".join(names[: arguments.images]) + "\n")
        large = enlarged(pictures / "images", names[: arguments.images], folder / "large")
        data, enlarged_data = (
            build_dataset("flickr", images=images, tokens=tokens, splits={"train": listed})
            for images in (pictures / "images", large)
        )
        sizes = {"": data, f", photographs of {CAMERA_WIDTH:,} pixels": enlarged_data}
        cluster.connect(None)
        for _ in range(arguments.turns):
            rate = {
                f"{threads} {'thread' if threads == 1 else 'threads'}{size}": rates(photographs, folder, threads)
                for size, photographs in sizes.items()
                for threads in (1, 2)
            }
            wait = {
                f"{actors} actors, {where}, {way}": waiting(data, folder, actors, mirror, arguments.seconds, at_once)
                for where, mirror in (("shards stay here", Mirror), ("a second to send a shard", SlowStorage))
                for actors in (1, 2)
                for way, at_once in (("one shard after the other", 1), ("the next meanwhile", _SHARDS_AT_ONCE))
            }
            turns.append({"rates": rate, "network_waits": wait, "load_average": os.getloadavg()[0]})
        cluster.disconnect()
    result = {
        "command": shlex.join(["python", *sys.argv]),
        "images": arguments.images,
        "images_of_a_shard": SHARD,
        "images_of_a_batch": BATCH,
        "network_seconds_an_image": arguments.seconds,
        "medians": medians(turns),
        "turns": turns,
    }
    write_json_atomic(arguments.output, result)
    sys.stdout.write(json.dumps(result["medians"], indent=1) + "\n")


if __name__ == "__main__":
    main()
