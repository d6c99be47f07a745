"""UniVSE and its baselines, trained on 1,600 photographs of Flickr8k: the start of the GRU, and all four evaluations.

Run: python tests/benchmarks/univse_study.py start
     python tests/benchmarks/univse_study.py systems
A study that was stopped resumes: rows that are in its result are not measured again.
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
    "training.checkpoint_steps=100000",
)
VSE_PP, UNIVSE = "flickr8k_univse_gru", "flickr8k_univse"
STUDIES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "start": {
        f"{label}, {start}": (name, (f"model.text.start={start}",))
        for start in ("published", "orthogonal_bias", "bias", "orthogonal")
        for label, name in (("VSE++", VSE_PP), ("UniVSE", UNIVSE))
    },
    "systems": {
        "VSE++, BiGRU, mean": ("flickr8k_univse_baseline", ()),
        "VSE++, GRU, last state": (VSE_PP, ()),
        "VSE-C, BiGRU, mean": ("flickr8k_vse_c", ("loss.adversarial_after=525 steps",)),
        "UniVSE, GRU, last state": (UNIVSE, ()),
        "UniVSE, BiGRU and GPO (beyond the paper)": (
            UNIVSE,
            ("model.text.pooling={name: gpo}", "model.image.pooling={name: gpo}"),
        ),
    },
}
PROTOCOLS = {"start": (), "systems": ("components", "dependencies", "attack")}


def configured(name: str, overrides: tuple[str, ...], seed: int) -> PipelineConfig:
    """Return the short configuration of a row."""
    return load_config(CONFIGS / f"{name}.yaml", [*SHORT, *overrides, f"seed={seed}"])


def make_shards(config: PipelineConfig, directory: Path) -> None:
    """Extract the features and parse the captions of the first images of both splits, where that is not done.

    Captions are parsed for the systems that read scene graphs.
    """
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
            if config.reads_graphs and not (graphs / spec.path.name).is_file():
                parse_shard(ParseSpec(graphs / spec.path.name, spec.path, "0" * 64), nlp, 256)


def splits(config: PipelineConfig, directory: Path) -> tuple[SplitData, SplitData]:
    """Open both splits."""
    train, dev = (
        SplitData(ShardReader(directory / split / "features", config.features.member), directory / split / "graphs")
        for split in IMAGES
    )
    return train, dev


def measure(config: PipelineConfig, directory: Path, protocols: tuple[str, ...]) -> dict[str, Any]:
    """Train a row and return the metrics of its last epoch; with protocols, those of its best one.

    VSE-C's is the last one even so: by RSUM its best comes before its adversarial captions do.
    """
    out, began = directory / "run", time.perf_counter()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    train, dev = splits(config, directory)
    prepare(config.training_settings, train, dev, out)
    trainer = quiet_trainer(config, train, dev, load_caption_encoder(out), out, Quiet())
    history = trainer.run()
    last = not protocols or config.preset == "vse_c"
    if last:
        trainer.checkpoints.save_best(len(history) - 1, trainer.model)
    chosen = history[-1] if last else max(history, key=lambda epoch: epoch["rsum"])
    result = {"rsum_by_epoch": [round(epoch["rsum"], 2) for epoch in history], "metrics": dict(chosen)}
    result["training_seconds"] = round(time.perf_counter() - began, 1)
    print(f"  {result['rsum_by_epoch']}", flush=True)
    if protocols:
        model = max(out.glob("best-*"))
        graphs = {split: directory / split / "graphs" for split in IMAGES}
        embedded = embed_split(config, directory / config.dataset.eval_split / "features", graphs, model)
        for protocol in protocols:
            result["metrics"] |= evaluate_captions(config, graphs, protocol, embedded, out).metrics
            print(f"  {protocol} {time.perf_counter() - began:.0f} s", flush=True)
    return result


def main() -> None:
    """Measure the missing rows of a study, seed by seed, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("runs/univse_study"), help="of shards and runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    make_shards(configured(UNIVSE, (), 0), arguments.directory)
    path = RESULTS / f"univse_{arguments.study}.json"
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "images": IMAGES}
    result |= {"settings": SHORT, "rows": {}}
    if path.is_file():
        result = json.loads(path.read_text(encoding="utf-8"))
    for seed in range(arguments.seeds):
        for row, (name, overrides) in STUDIES[arguments.study].items():
            if str(seed) in result["rows"].setdefault(row, {}):
                continue
            print(f"{row}, seed {seed}", flush=True)
            config = configured(name, overrides, seed)
            result["rows"][row][str(seed)] = measure(config, arguments.directory, PROTOCOLS[arguments.study])
            write_json_atomic(path, result)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main()
