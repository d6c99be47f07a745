"""One model (VSE++) under each loss and recipe, trained on 1,600 photographs of Flickr8k, three seeds.

Run: python tests/benchmarks/loss_study.py
A study that was stopped resumes: rows that are in its result are not measured again. The hard negatives are mined with
the first row's model of the same seed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from reader import RESULTS, machine
from univse_study import CONFIGS, IMAGES, make_shards, measure

from pipelines.config import PipelineConfig, load_config
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.retrieval.gallery import build_gallery
from pipelines.stages.mining import mined
from preprocessing.datasets import build_dataset
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.models import load_model

SHORT = (
    "model.embed_dim=256",
    "training.epochs=8",
    "training.size_augmentation=none",
    "training.checkpoint_steps=100000",
)
TRIPLET = "loss.all_negatives=125 steps"
MASK = "mask_same_image: true"
ROWS: dict[str, tuple[str, ...]] = {
    "triplet, hardest of the batch": (TRIPLET,),
    "triplet, moving average of the weights": (TRIPLET, "training.ema_decay=0.98"),
    "triplet and mined hard negatives": (
        "preset=hard_negatives",
        "loss={name: hard_negatives, margin: 0.2, reduction: sum, mask_same_image: true, all_negatives: 125 steps, "
        "adversarial_after: 125 steps, adversarial_captions: 5, table: TABLE}",
    ),
    "InfoNCE, temperature 0.05": (f"loss={{name: infonce, temperature: 0.05, {MASK}}}",),
    "InfoNCE, learned from 0.07 on": (f"loss={{name: infonce, temperature: 0.07, learned: true, {MASK}}}",),
    "sigmoid, temperature 0.1 and bias -10": (f"loss={{name: sigmoid, {MASK}}}",),
    "sigmoid, both learned from there on": (f"loss={{name: sigmoid, learned: true, {MASK}}}",),
}


def configured(overrides: tuple[str, ...], seed: int, table: Path) -> PipelineConfig:
    """Return the short configuration of a row."""
    chosen = [override.replace("TABLE", str(table)) for override in overrides]
    return load_config(CONFIGS / "flickr8k_vse_pp.yaml", [*SHORT, *chosen, f"seed={seed}"])


def mine(config: PipelineConfig, directory: Path, table: Path) -> None:
    """Write the ten wrong captions that the model just trained finds nearest to each training image."""
    model = max((directory / "run").glob("best-*"))
    texts = TextEmbedder(load_model(model, torch.device("cpu")), model)
    reader = ShardReader(directory / "train" / "features", config.features.member)
    root = build_dataset(config.dataset.format, **config.dataset.options()).root
    gallery = build_gallery(texts.model, reader, texts.caption_encoder, root)
    pyarrow.parquet.write_table(mined(gallery, 10), table)


def main() -> None:
    """Measure the missing rows, seed by seed, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("runs/loss_study"), help="of shards and runs")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    torch.set_num_threads(1)
    make_shards(configured((TRIPLET,), 0, directory), directory)
    path = RESULTS / "losses.json"
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "images": IMAGES}
    result |= {"settings": SHORT, "rows": {}}
    if path.is_file():
        result = json.loads(path.read_text(encoding="utf-8"))
    for seed in range(arguments.seeds):
        table = directory / f"negatives-{seed}.parquet"
        for row, overrides in ROWS.items():
            if str(seed) in result["rows"].setdefault(row, {}):
                continue
            print(f"{row}, seed {seed}", flush=True)
            config = configured(overrides, seed, table)
            result["rows"][row][str(seed)] = measure(config, directory, ())
            if not table.is_file():
                mine(config, directory, table)
            write_json_atomic(path, result)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main()
