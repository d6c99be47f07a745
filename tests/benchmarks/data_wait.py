"""The share of a training step that waits for data, with shards that are here and with shards that come from S3.

Every way trains the same model on the same number of batches: on a batch in memory (the reference), on a split that is
all here, and on one that is larger than the disk's room and comes from a real S3 server during training: whole shards,
with those of the next window fetched ahead and without, and the bytes of the samples alone.

Run: python tests/benchmarks/data_wait.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after this folder, whose neighbours are imported by their own names

import torch  # noqa: E402
from reader import BATCH, RESULTS, machine, make_shards  # noqa: E402
from training import ROWS, WIDTH, Run  # noqa: E402

from preprocessing.captions.token_table import TokenTable  # noqa: E402
from preprocessing.captions.vocabulary import Vocabulary  # noqa: E402
from preprocessing.loading.image_source import FeatureSource  # noqa: E402
from preprocessing.loading.loader import TrainLoader  # noqa: E402
from preprocessing.loading.sampler import BatchSampler  # noqa: E402
from preprocessing.shards.reader import ShardReader  # noqa: E402
from preprocessing.shards.split_index import SplitIndex  # noqa: E402
from preprocessing.storage import Mirror  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.integration import s3_server  # noqa: E402

WINDOW = 2
# Two windows, the one that is read and the next, and what is on its way.
ROOM_IN_SHARDS = 2 * WINDOW + 3
Words = tuple[TokenTable, Vocabulary]


class WithoutFetching:
    """A reader that has shards only when they are needed: what the prefetch is measured against."""

    is_streamed = is_remote = False

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __len__(self) -> int:
        return len(self._reader)


@contextlib.contextmanager
def s3_storage(folder: Path) -> Iterator[str]:
    """The address of an empty bucket on a server of its own."""
    server = s3_server.start(folder / "swift")
    os.environ |= {
        "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
        "AWS_REGION": s3_server.REGION,
        "AWS_ENDPOINT_URL": server.endpoint,
    }
    try:
        from preprocessing.storage import s3

        s3.client().create_bucket(Bucket="vse")
        yield "s3://vse/split"
    finally:
        server.stop()


def _loader(reader: Any, window: int | None, words: Words) -> TrainLoader:
    sampler = BatchSampler(reader.num_captions, BATCH, 0, reader.shard_captions, window)
    return TrainLoader(reader, FeatureSource(reader, 0, "region"), *words, sampler, 0, 1, 0, True)


def measure(reader: Any, window: int | None, words: Words) -> dict[str, float]:
    """Train one epoch; seconds a step, and the share of them that waited, the first window's arrival left out."""
    loader = _loader(reader, window, words)
    run, batches = Run(len(words[1])), loader.epoch(1)
    began = time.perf_counter()
    run.step(next(batches))
    first, waited, steps = time.perf_counter() - began, loader.wait_seconds, 0
    began = time.perf_counter()
    for batch in batches:
        run.step(batch)
        steps += 1
    seconds = time.perf_counter() - began
    return {
        "seconds_to_the_first_step": round(first, 3),
        "seconds_per_step": round(seconds / steps, 4),
        "share_waiting_for_data": round((loader.wait_seconds - waited) / seconds, 5),
    }


def samples_per_second(reader: Any, window: int, words: Words) -> float:
    """Read one epoch and do nothing with it."""
    batches = _loader(reader, window, words).epoch(1)
    next(batches)
    began = time.perf_counter()
    steps = sum(1 for _ in batches)
    return round(steps * BATCH / (time.perf_counter() - began))


def in_memory(reader: ShardReader, words: Words, steps: int) -> dict[str, float]:
    """The same steps on one batch."""
    run, batch = Run(len(words[1])), _loader(reader, None, words).batch(0, 0)
    run.step(batch)
    began = time.perf_counter()
    for _ in range(steps):
        run.step(batch)
    return {"seconds_per_step": round((time.perf_counter() - began) / steps, 4), "share_waiting_for_data": 0.0}


def read_in_parts(folder: Path, address: str) -> ShardReader:
    """A reader that asks the server for the bytes of each sample, as one machine of many does."""
    mirror = Mirror(folder / "in-parts", address)
    shards = mirror.root / "train"
    mirror.pull(shards, lambda entry: entry.endswith(".json"))
    index = SplitIndex.read(shards, "grid", are_here=False)
    return ShardReader(shards, "grid", verify=True, read_range=mirror.read_range, index=index)


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "data_wait.json", help="JSON file for the result")
    parser.add_argument("--images", type=int, default=8000, help="images of the split")
    parser.add_argument("--shard-size", type=int, default=500, help="images of a shard")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with s3_storage(folder) as address:
            local = folder / "here" / "train"
            local.mkdir(parents=True)
            make_shards(local, ROWS, WIDTH, arguments.images, arguments.shard_size)
            Mirror(folder / "here", address).push_missing(local, (path.name for path in local.iterdir()))
            shards = sorted(local.glob("*.tar"))
            size = max(path.stat().st_size for path in shards)
            reader = ShardReader(local, "grid", verify=True)
            vocabulary = Vocabulary.build((reader.meta(i)["captions"][0]["text"] for i in range(len(reader))), 1)
            words = TokenTable.encode(reader.texts(), vocabulary), vocabulary
            steps = BatchSampler(reader.num_captions, BATCH, 0).steps_per_epoch
            ways = {
                "a batch in memory": in_memory(reader, words, steps),
                "all here": measure(reader, None, words),
            }
            for name, fetching in (("from S3, fetched ahead", True), ("from S3, fetched when needed", False)):
                mirror = Mirror(folder / f"there-{fetching}", address, ROOM_IN_SHARDS * size)
                mirror.pull(mirror.root / "train", lambda entry: entry.endswith(".json"))
                there = ShardReader(mirror.root / "train", "grid", 2 * WINDOW + 2, True, mirror.pinned_shard)
                ways[name] = measure(there if fetching else WithoutFetching(there), WINDOW, words)
            samples = read_in_parts(folder, address)
            ways["from S3, the samples' bytes alone"] = measure(samples, WINDOW, words)
            rate = samples_per_second(samples, WINDOW, words)
    reference = ways["a batch in memory"]["seconds_per_step"]
    result |= {
        "split": f"{len(shards)} shards of {size:,} bytes",
        "room": f"{ROOM_IN_SHARDS} shards",
        "window": f"{WINDOW} shards",
        "samples_per_second_by_their_bytes_alone": rate,
        "ways": {
            name: {**way, "times_a_batch_in_memory": round(way["seconds_per_step"] / reference, 3)}
            for name, way in ways.items()
        },
    }
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
