"""One model (VSE++) under each loss and recipe, trained on 1,600 photographs of Flickr8k, three seeds.

Run: python tests/benchmarks/loss_study.py
A study that was stopped resumes: rows that are in its result are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine
from univse_study import CONFIGS, IMAGES, make_shards, measure

from pipelines.config import PipelineConfig, load_config
from preprocessing.storage.atomic import write_json_atomic

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
    "InfoNCE, temperature 0.05": (f"loss={{name: infonce, temperature: 0.05, {MASK}}}",),
    "InfoNCE, learned from 0.07 on": (f"loss={{name: infonce, temperature: 0.07, learned: true, {MASK}}}",),
    "sigmoid, temperature 0.1 and bias -10": (f"loss={{name: sigmoid, {MASK}}}",),
    "sigmoid, both learned from there on": (f"loss={{name: sigmoid, learned: true, {MASK}}}",),
}


def configured(overrides: tuple[str, ...], seed: int) -> PipelineConfig:
    """Return the short configuration of a row."""
    return load_config(CONFIGS / "flickr8k_vse_pp.yaml", [*SHORT, *overrides, f"seed={seed}"])


def main() -> None:
    """Measure the missing rows, seed by seed, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("runs/loss_study"), help="of shards and runs")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    torch.set_num_threads(1)
    make_shards(configured((TRIPLET,), 0), directory)
    path = RESULTS / "losses.json"
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "images": IMAGES}
    result |= {"settings": SHORT, "rows": {}}
    if path.is_file():
        result = json.loads(path.read_text(encoding="utf-8"))
    for seed in range(arguments.seeds):
        for row, overrides in ROWS.items():
            if str(seed) in result["rows"].setdefault(row, {}):
                continue
            print(f"{row}, seed {seed}", flush=True)
            config = configured(overrides, seed)
            result["rows"][row][str(seed)] = measure(config, directory, ())
            write_json_atomic(path, result)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main()
