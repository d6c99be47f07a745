"""Seconds and memory from a training process's first line to its first batch, with tables and as it was without.

Flickr8k has its real captions and grids of 49 x 1280 that are all alike; the large split has made-up tables, as they
would be of real captions, and all its shards are one file under many names. Every figure is of a process of its own,
which has the imports of training behind it.

Run: python tests/benchmarks/start_up.py --flickr8k FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from reader import RESULTS, machine

from pipelines.config import load_config
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.training.readers import open_splits
from preprocessing.captions import load_pipeline
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.graph_shards import ParseSpec, parse_shard
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import build_dataset
from preprocessing.shards import Sample, ShardReader, write_shard
from preprocessing.shards.open_shards import TarFile
from preprocessing.shards.split_index import SplitIndex
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import NO_MIRROR, table_path

SHARD_SIZE, LARGE_SHARD_SIZE = 500, 1000
LARGE_FEATURES = (36, 2048)
TOKENS = 12
SETTINGS = (
    "training.batch_size=128",
    "model={embed_dim: 512, text: {name: bigru, word_dim: 300, pooling: {name: gpo}}}",
)


UNIVSE = (
    "preset=univse",
    "training.batch_size=128",
    "model={embed_dim: 512, text: {word_vectors: null, train_words: true}}",
)


def make_flickr8k(data: Path, folder: Path) -> None:
    """Write shards of both splits, and their tables."""
    lists = {"train": data / "Flickr_8k.trainImages.txt", "dev": data / "Flickr_8k.devImages.txt"}
    dataset = build_dataset("flickr", images=data / "images", tokens=data / "Flickr8k.token.txt", splits=lists)
    grid = np.random.default_rng(0).standard_normal((49, 1280)).astype(np.float16)

    def samples(split: str) -> Iterator[Sample]:
        for number, record in enumerate(dataset.records(split)):
            captions = [{"caption_id": caption.caption_id, "text": caption.text} for caption in record.captions]
            meta = {"image_id": record.image_id, "image": Path(record.image_uri).name, "split": split}
            yield Sample(f"{number:08d}", {"grid": grid}, {**meta, "captions": captions})

    for split in lists:
        (folder / split).mkdir(parents=True)
        everything = list(samples(split))
        for shard, first in enumerate(range(0, len(everything), SHARD_SIZE)):
            path = folder / split / f"shard-{shard:05d}.tar"
            write_shard(path, everything[first : first + SHARD_SIZE], "flickr8k")
    words = Vocabulary.build(ShardReader(folder / "train", "grid").texts())
    words.save(folder / words.FILE)
    for split in lists:
        make_tables(ShardReader(folder / split, "grid"), words, folder / f"tables-{split}")


def make_univse(folder: Path) -> None:
    """Parse the captions, and write what UniVSE's train stage does: its words, pools of negatives, and tables."""
    nlp = load_pipeline()
    settings = load_config(None, UNIVSE).training_settings
    for split in ("train", "dev"):
        (folder / f"graphs-{split}").mkdir()
        for shard in sorted((folder / split).glob("*.tar")):
            parse_shard(ParseSpec(folder / f"graphs-{split}" / shard.name, shard, "flickr8k"), nlp, 256)
    run = folder / "univse"
    run.mkdir()
    splits = {
        name: SplitData(ShardReader(folder / name, "grid"), folder / f"graphs-{name}") for name in ("train", "dev")
    }
    words, _ = settings.kind.prepare(settings.kind_settings, splits["train"], splits["dev"], run)
    words.save(run / words.FILE)
    for name, split in splits.items():
        make_tables(split.reader, words, run / f"tables-{name}")
        settings.kind.write_tables(settings.kind_settings, split, words, run / f"tables-{name}")


def make_tables(reader: ShardReader, words: Vocabulary, folder: Path) -> None:
    """Write the tables of a split as the train stage does."""
    folder.mkdir()
    reader.index.save(folder)
    TokenTable.encode(reader.texts(), words).save(folder)


def make_large(folder: Path, images: int) -> None:
    """Write the tables of a split of so many images, one caption each, and its shards as links to one file."""
    words = Vocabulary(["<pad>", "<start>", "<end>", "<unk>", *(f"word{number}" for number in range(10_000))])
    words.save(folder / words.FILE)
    for split, count in (("train", images), ("dev", LARGE_SHARD_SIZE)):
        shards, tables = folder / split, folder / f"tables-{split}"
        shards.mkdir(parents=True)
        tables.mkdir()
        meta = {"image_id": "0", "image": "0.jpg", "split": split, "captions": [{"caption_id": "0", "text": "a dog"}]}
        array = np.ones(LARGE_FEATURES, np.float16)
        first = shards / "shard-00000.tar"
        samples = (Sample(f"{number:08d}", {"grid": array}, meta) for number in range(LARGE_SHARD_SIZE))
        write_shard(first, samples, "large")
        of_one = SplitIndex.read(shards, "grid", are_here=True)
        copies = count // LARGE_SHARD_SIZE
        for number in range(1, copies):
            (shards / f"shard-{number:05d}.tar").hardlink_to(first)
        tars = [TarFile(first, of_one.tars[0].bytes, of_one.tars[0].sha256)] * copies
        starts, numbers = np.arange(0, count + 1, LARGE_SHARD_SIZE), np.arange(count + 1)
        places, grids = np.tile(of_one.places, copies), np.tile(of_one.grids, (copies, 1))
        checksums = np.tile(of_one.checksums, copies)
        SplitIndex(tars, "large", starts, numbers, places, grids, checksums).save(tables)
        rng = np.random.default_rng(0)
        np.save(tables / "tokens.npy", rng.integers(4, len(words), count * TOKENS, dtype=np.int32))
        np.save(tables / "words.npy", np.tile(np.array([-1, *range(TOKENS - 2), -1], np.int16), count))
        np.save(tables / "token_starts.npy", np.arange(0, count * TOKENS + 1, TOKENS))


def without_tables(folder: Path, words: CaptionEncoder) -> tuple[SplitData, SplitData]:
    """Open both splits by their sidecars, and encode the captions from records in the tars, as it was before."""
    for table in folder.glob("*/shard-*.tar"):
        table_path(table).unlink(missing_ok=True)
    readers = [ShardReader(folder / split, "grid", verify=True) for split in ("train", "dev")]
    train, dev = (
        SplitData(reader, folder / f"graphs-{reader.directory.name}", TokenTable.encode(reader.texts(), words))
        for reader in readers
    )
    return train, dev


def start(folder: Path, way: str, window: int | None) -> dict[str, float]:
    """Start a training in this process, up to its first batch."""
    began = time.perf_counter()
    import torch
    import torch._dynamo  # which the first optimiser imports

    from pipelines.training.trainer import Trainer

    imported = time.perf_counter() - began
    torch.set_num_threads(1)
    overrides = [] if window is None else [f"training.shuffle_shards={window}"]
    is_univse = way.startswith("UniVSE")
    settings = load_config(None, [*(UNIVSE if is_univse else SETTINGS), *overrides]).training_settings
    run = folder / "univse" if is_univse else folder
    before, processor, began = memory(), time.process_time(), time.perf_counter()
    words = Vocabulary.load(run / Vocabulary.FILE)
    if way.endswith("without tables"):
        train, dev = without_tables(folder, words)
    else:
        paths = (SplitPaths(folder / split, None, run / f"tables-{split}") for split in ("train", "dev"))
        opened = open_splits(NO_MIRROR, "grid", window, *paths)
        train, dev = opened.__enter__()
    opened_at, opened_memory = time.perf_counter(), memory()
    trainer = Trainer(settings, train, dev, words, run, torch.device("cpu"), None, lambda metrics: None)
    built_at = time.perf_counter()
    batch = trainer.loader.batch(0, 0)
    assert 127 <= len(batch) <= 128
    ended = time.perf_counter()
    return {
        "seconds_of_imports": round(imported, 3),
        "seconds_to_open": round(opened_at - began, 3),
        "seconds_to_build_the_model": round(built_at - opened_at, 3),
        "seconds_to_the_first_batch": round(ended - built_at, 3),
        "seconds": round(ended - began, 3),
        "cpu_seconds": round(time.process_time() - processor, 3),
        "own_megabytes_of_captions_and_tokens": round((opened_memory["RssAnon"] - before["RssAnon"]) / 1e3, 1),
        "own_megabytes_at_the_first_batch": round((memory()["RssAnon"] - before["RssAnon"]) / 1e3, 1),
        "mapped_megabytes_at_the_first_batch": round((memory()["RssFile"] - before["RssFile"]) / 1e3, 1),
    }


def memory() -> dict[str, int]:
    """Return the kilobytes of a process's own pages (RssAnon), and of the mapped ones that it shares (RssFile)."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Rss")]
    return {name.rstrip(":"): int(value) for name, value, _ in lines}


def measured(folder: Path, way: str, window: int | None = None) -> dict[str, float]:
    """Start a training in a process of its own."""
    command = [sys.executable, __file__, "--start", str(folder), "--way", way]
    command += [] if window is None else ["--window", str(window)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{folder.name} {way} {window}: {result}", flush=True)
    return result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "start_up.json", help="JSON file for the result")
    parser.add_argument("--flickr8k", type=Path, default=Path("../shared/data/flickr8k"), help="folder of the data set")
    parser.add_argument("--images", type=int, default=12_400_000, help="images of the large split, a caption each")
    parser.add_argument("--window", type=int, default=64, help="training.shuffle_shards of the large split")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start is not None:
        window = arguments.window if "--window" in sys.argv else None
        print(json.dumps(start(arguments.start, arguments.way, window)))
        return
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        flickr8k, large = Path(temporary) / "flickr8k", Path(temporary) / "large"
        make_flickr8k(arguments.flickr8k, flickr8k)
        for folder in (flickr8k, large):
            folder.mkdir(exist_ok=True)
        make_large(large, arguments.images)
        make_univse(flickr8k)
        ways = ("with tables", "UniVSE with tables", "UniVSE without tables", "without tables")
        result["flickr8k"] = {way: measured(flickr8k, way) for way in ways}
        result["large"] = {
            "images": arguments.images,
            "with tables": measured(large, "with tables"),
            f"with tables, windows of {arguments.window} shards": measured(large, "with tables", arguments.window),
        }
    write_json_atomic(arguments.output, result)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main()
