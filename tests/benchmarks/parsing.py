"""How fast captions are parsed beside the bare pipeline, and how right the result is.

Both parse the captions of Flickr8k's dev split with the pipeline that ships, in one process with one thread, as Ray
runs the stage's actors, taking turns:
the bare pipeline only runs `nlp.pipe`; the stage's work reads a shard, applies the rules, writes and hashes a shard.
Quality is measured on the captions annotated by hand (tests/preprocessing/captions/assets/components_gold.jsonl).

Run: python tests/benchmarks/parsing.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Ray gives an actor of one CPU one thread. Read when numpy is imported.
os.environ["OMP_NUM_THREADS"] = "1"

from reader import RESULTS, machine
from spacy.language import Language

from preprocessing.captions import load_pipeline
from preprocessing.captions.scene_graph import parse_captions
from preprocessing.datasets import Record, build_dataset
from preprocessing.parsing import ParseSpec, parse_shard
from preprocessing.shards.storage import write_json_atomic
from preprocessing.shards.writer import Sample, write_shard

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.preprocessing.captions.components_score import read_gold, score

BATCH = 256


def main() -> None:
    """Measure speed and quality and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds flickr8k")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = arguments.data / "flickr8k"
    splits = {"dev": folder / "Flickr_8k.devImages.txt"}
    dataset = build_dataset("flickr", images=folder / "images", tokens=folder / "Flickr8k.token.txt", splits=splits)
    records = list(dataset.records("dev"))
    captions = {caption.caption_id: caption.text for record in records for caption in record.captions}
    nlp = load_pipeline()
    result = {
        "command": f"python {' '.join(sys.argv)}",
        "captions": len(captions),
        **speed(records, list(captions.values()), nlp, arguments.rounds),
        "quality": quality(captions, nlp),
        "machine": machine(),
    }
    write_json_atomic(RESULTS / "parsing.json", result)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


def speed(records: Sequence[Record], texts: Sequence[str], nlp: Language, rounds: int) -> dict[str, Any]:
    """Captions a second of both ways, and the median of the ratios of neighbouring rounds."""
    bare, staged = [], []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        samples = (
            Sample(
                f"{number:08d}",
                {},
                {
                    "image_id": record.image_id,
                    "captions": [{"caption_id": c.caption_id, "text": c.text} for c in record.captions],
                },
            )
            for number, record in enumerate(records)
        )
        write_shard(root / "shard-00000.tar", samples, "benchmark", [])
        (root / "graphs").mkdir()
        spec = ParseSpec(root / "graphs" / "shard-00000.tar", root / "shard-00000.tar", "benchmark")
        for _ in range(rounds + 1):
            began = time.perf_counter()
            for _ in nlp.pipe(texts, batch_size=BATCH):
                pass
            middle = time.perf_counter()
            parse_shard(spec, nlp, BATCH)
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


def quality(captions: Mapping[str, str], nlp: Language) -> dict[str, dict[str, float]]:
    """Precision and recall of each kind of component on the annotated captions."""
    ids = list(read_gold())
    parsed = parse_captions(nlp, (captions[caption_id] for caption_id in ids), BATCH)
    scores = score((caption_id, result.graph) for caption_id, result in zip(ids, parsed, strict=True))
    return {
        kind: {"precision": round(found.precision, 3), "recall": round(found.recall, 3), "annotated": found.annotated}
        for kind, found in scores.items()
    }


if __name__ == "__main__":
    main()
