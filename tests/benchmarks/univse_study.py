"""UniVSE and its baselines on 1,600 photographs of Flickr8k with one training configuration, by all four evaluations.

Run: python tests/benchmarks/univse_study.py train
     python tests/benchmarks/univse_study.py measure
Both resume: a row that has its model, or its figures, is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.evaluator import embed_split, evaluate_captions
from pipelines.kinds.inputs import SplitData
from pipelines.stages.extract.identity import extractor_options
from pipelines.training.prepare import prepare
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.graph_shards import ParseSpec, parse_shard
from preprocessing.captions.pipeline import load_pipeline
from preprocessing.datasets import build_dataset
from preprocessing.extraction.extract import extract_shard, shard_specs
from preprocessing.features import build_extractor
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from tests.pipelines.training.by_hand import Quiet, quiet_trainer

CONFIGS = Path(__file__).resolve().parents[2] / "pipelines/config/data"
IMAGES = {"train": 1600, "dev": 1000}
SHORT = (
    "model.embed_dim=256",
    "training.epochs=12",
    "loss.all_negatives=525 steps",
    "training.size_augmentation=none",
    "training.checkpoint_minutes=2",
)
PROTOCOLS = ("dependencies", "components", "attack")
UNIVSE = "flickr8k_univse"
SENTENCES = ("model.text.directions=1", "model.text.pooling={name: last}", "model.text.start=orthogonal_bias")
IMAGE = ("model.image.center=true", "loss.negatives_from=captions")


def _weights(weight: int) -> tuple[str, ...]:
    return (*IMAGE, f"loss.object_weight={weight}", f"loss.attribute_weight={weight}")


ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "VSE++": ("flickr8k_univse_gru", ()),
    "UniVSE, uniform negatives": (UNIVSE, ()),
    "VSE-C": ("flickr8k_vse_c", ("loss.adversarial_after=525 steps", *SENTENCES)),
    "UniVSE, centred, matched negatives, weights 5": (UNIVSE, _weights(5)),
    "UniVSE, centred, matched negatives, weights 2": (UNIVSE, _weights(2)),
    "UniVSE, centred, matched negatives, weights 1": (UNIVSE, _weights(1)),
    "VSE++, centred": ("flickr8k_univse_gru", IMAGE[:1]),
    "UniVSE, uniform negatives, weights 5": (UNIVSE, _weights(5)[2:]),
}


def configured(name: str, overrides: tuple[str, ...], seed: int) -> PipelineConfig:
    """Return the short configuration of a row."""
    return load_config(CONFIGS / f"{name}.yaml", [*SHORT, *overrides, f"seed={seed}"])


def make_shards(config: PipelineConfig, directory: Path) -> None:
    """Extract the features and parse the captions of the first images of both splits, where that is not done."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    nlp, extractor = load_pipeline(None), None
    for split, count in IMAGES.items():
        features, graphs = directory / split / "features", directory / split / "graphs"
        for made in (features, graphs):
            made.mkdir(parents=True, exist_ok=True)
        records = list(dataset.records(split))[:count]
        for spec in shard_specs(records, features, 500, "0" * 64, dataset.root):
            if not spec.path.is_file():
                extractor = extractor or build_extractor(
                    config.features.extractor, **extractor_options(config.features)
                )
                extract_shard(spec, extractor, 32)
            if not (graphs / spec.path.name).is_file():
                parse_shard(ParseSpec(graphs / spec.path.name, spec.path, "0" * 64), nlp, 256)


def splits(config: PipelineConfig, directory: Path) -> tuple[SplitData, SplitData]:
    """Open both splits."""
    train, dev = (
        SplitData(ShardReader(directory / split / "features", config.features.member), directory / split / "graphs")
        for split in IMAGES
    )
    return train, dev


def train(config: PipelineConfig, directory: Path, out: Path) -> None:
    """Train a row and keep its best epoch by RSUM, and VSE-C's last one.

    By RSUM VSE-C's best epoch comes before its adversarial captions do.
    """
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    train_split, dev = splits(config, directory)
    prepare(config.training_settings, train_split, dev, out)
    trainer = quiet_trainer(config, train_split, dev, load_caption_encoder(out), out, Quiet())
    history = trainer.run()
    last = config.preset == "vse_c"
    if last:
        trainer.checkpoints.save_best(len(history) - 1, trainer.model)
    chosen = history[-1] if last else max(history, key=lambda epoch: epoch["rsum"])
    result = {"rsum_by_epoch": [round(epoch["rsum"], 2) for epoch in history], "metrics": dict(chosen)}
    write_json_atomic(out / "trained.json", {**result, "training_seconds": round(time.perf_counter() - began, 1)})
    print(f"  {result['rsum_by_epoch']}", flush=True)
    for checkpoint in out.glob("checkpoints/step-*"):
        shutil.rmtree(checkpoint)


def measure(config: PipelineConfig, directory: Path, out: Path) -> dict[str, Any]:
    """Return what training kept of a row, with the metrics of the protocols."""
    result = json.loads((out / "trained.json").read_text(encoding="utf-8"))
    graphs = {split: directory / split / "graphs" for split in IMAGES}
    model = max(out.glob("best-*"))
    embedded = embed_split(config, directory / config.dataset.eval_split / "features", graphs, model)
    for protocol in PROTOCOLS:
        result["metrics"] |= evaluate_captions(config, graphs, protocol, embedded, out).metrics
    return result


def main() -> None:
    """Train or measure the missing rows, seed by seed, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", choices=("train", "measure"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--directory", type=Path, default=Path("runs/univse_study"), help="of shards and runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.step == "train":
        make_shards(configured(UNIVSE, (), 0), arguments.directory)
    path = RESULTS / "univse_image.json"
    command = shlex.join(["python", *sys.argv])
    result = {"command": command, "machine": machine(), "images": IMAGES, "settings": SHORT, "rows": {}}
    if path.is_file():
        result = json.loads(path.read_text(encoding="utf-8"))
    for seed in range(arguments.seeds):
        for row in arguments.rows:
            name, overrides = ROWS[row]
            out = arguments.directory / row / str(seed)
            is_trained = (out / "trained.json").is_file()
            if arguments.step == "train" and not is_trained:
                print(f"{row}, seed {seed}", flush=True)
                train(configured(name, overrides, seed), arguments.directory, out)
            elif arguments.step == "measure" and is_trained and str(seed) not in result["rows"].setdefault(row, {}):
                print(f"{row}, seed {seed}", flush=True)
                result["rows"][row][str(seed)] = measure(configured(name, overrides, seed), arguments.directory, out)
                write_json_atomic(path, result)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main()
