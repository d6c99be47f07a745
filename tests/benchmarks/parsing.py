"""Speed of caption parsing next to the bare spaCy pipeline, and its precision and recall.

Both parse the captions of Flickr8k's dev split with the pipeline that ships, taking turns: the bare pipeline only runs
`nlp.pipe`; the stage's work reads shards, applies the rules, writes and hashes shards. Once in one process with one
thread, as Ray runs an actor of the stage, and once in a process on each of two cores.
Quality is measured on the captions annotated by hand (tests/preprocessing/captions/assets/components_gold.jsonl), or on
those of another file of this form, of Flickr8k or coco_mini, and then alone.

Run: python tests/benchmarks/parsing.py
     python tests/benchmarks/parsing.py --quality FILE
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Ray gives an actor of one CPU one thread. Read when numpy is imported.
os.environ["OMP_NUM_THREADS"] = "1"

from reader import RESULTS, origin
from spacy.language import Language

from preprocessing.captions.graph_shards import ParseSpec, parse_shard
from preprocessing.captions.pipeline import load_pipeline
from preprocessing.captions.scene_graph.parse import parse_captions
from preprocessing.datasets import Record, build_dataset
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_json_atomic

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.preprocessing.captions.components_score import (
    DEVELOPMENT,
    GOLD,
    HELD_OUT,
    read_captions,
    read_gold,
    score,
)

BATCH = 256


def main() -> None:
    """Measure speed and quality and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds flickr8k")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--quality", type=Path, metavar="FILE", help="print precision, recall and F1 on this annotation"
    )
    arguments = parser.parse_args()
    nlp, annotated = load_pipeline(), read_captions(arguments.data)
    if arguments.quality:
        sys.stdout.write(json.dumps(quality(annotated, nlp, arguments.quality), indent=1) + "\n")
        return
    folder = arguments.data / "flickr8k"
    splits = {"dev": folder / "Flickr_8k.devImages.txt"}
    dataset = build_dataset("flickr", images=folder / "images", tokens=folder / "Flickr8k.token.txt", splits=splits)
    records = list(dataset.records("dev"))
    captions = {caption.caption_id: caption.text for record in records for caption in record.captions}
    result = {
        **origin(),
        "captions": len(captions),
        "one_core": speed(records, list(captions.values()), nlp, arguments.rounds, cores=1),
        "two_cores": speed(records, list(captions.values()), nlp, arguments.rounds, cores=2),
        "quality": {path.stem: quality(annotated, nlp, path) for path in (GOLD, DEVELOPMENT, HELD_OUT)},
    }
    write_json_atomic(RESULTS / "parsing.json", result)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def speed(records: Sequence[Record], texts: Sequence[str], nlp: Language, rounds: int, cores: int) -> dict[str, Any]:
    """Captions a second of both ways, and the median of the ratios of neighbouring rounds."""
    bare, staged = [], []
    with tempfile.TemporaryDirectory() as name, worker_processes(cores) as run_each:
        specs = write_shards(records, Path(name), cores)
        for _ in range(rounds + 1):
            began = time.perf_counter()
            for _ in nlp.pipe(texts, batch_size=BATCH, n_process=cores):
                pass
            middle = time.perf_counter()
            run_each(specs)
            bare.append(len(texts) / (middle - began))
            staged.append(len(texts) / (time.perf_counter() - middle))
    # The first round warms up.
    ratios = [ours / theirs for ours, theirs in zip(staged[1:], bare[1:], strict=True)]
    return {
        "bare_captions_per_second": round(statistics.median(bare[1:]), 1),
        "stage_captions_per_second": round(statistics.median(staged[1:]), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


@contextlib.contextmanager
def worker_processes(count: int) -> Iterator[Callable[[list[ParseSpec]], object]]:
    """Return a function that makes shards in several processes, each with its own pipeline, as the actors do."""
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=load_worker) as pool:
        yield lambda specs: list(pool.map(parse_one, specs))


_worker: dict[str, Language] = {}


def load_worker() -> None:
    """Load the pipeline of a worker process."""
    _worker["nlp"] = load_pipeline()


def parse_one(spec: ParseSpec) -> None:
    """Make one shard in a worker process."""
    parse_shard(spec, _worker["nlp"], BATCH)


def write_shards(records: Sequence[Record], root: Path, count: int) -> list[ParseSpec]:
    """Feature shards that hold captions alone, and what is to be made of them."""
    (root / "graphs").mkdir()
    specs = []
    for shard in range(count):
        share = records[shard * len(records) // count : (shard + 1) * len(records) // count]
        samples = []
        for number, record in enumerate(share):
            captions = [asdict(caption) for caption in record.captions]
            meta = {"image_id": record.image_id, "image": record.image_uri, "split": record.split, "captions": captions}
            samples.append(Sample(f"{number:08d}", {}, meta))
        path = root / f"shard-{shard:05d}.tar"
        write_shard(path, samples, "benchmark")
        specs.append(ParseSpec(root / "graphs" / path.name, path, "benchmark"))
    return specs


def quality(captions: Mapping[str, str], nlp: Language, path: Path) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each kind of component on the annotated captions."""
    ids = list(read_gold(path))
    parsed = parse_captions(nlp, (captions[caption_id] for caption_id in ids), BATCH)
    scores = score(((caption_id, result.graph) for caption_id, result in zip(ids, parsed, strict=True)), path)
    return {
        kind: {
            "precision": round(found.precision, 3),
            "recall": round(found.recall, 3),
            "f1": round(found.f1, 3),
            "annotated": found.annotated,
        }
        for kind, found in scores.items()
    }


if __name__ == "__main__":
    main()
