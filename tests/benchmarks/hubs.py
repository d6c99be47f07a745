"""What hub correction is worth: of the leaderboard's models, by banks, temperatures and directions, next to CSLS.

Run: python tests/benchmarks/hubs.py with the --directory, --minilm and --set of the leaderboard's runs

Rows whose training is not finished there are left out. All figures are of the development split. The vectors that they
are computed from stay in FOLDER/vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from corrected import Vectors, gain, keep_both, summarized
from leaderboard import CONFIGS, DATA, FEATURES, ROWS, Row
from reader import RESULTS, origin
from safetensors.torch import load_file, save_file

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.evaluator import embed_split
from pipelines.evaluation.hub_correction import TEMPERATURES, embed_bank
from pipelines.inference.learned_values import learned_temperature
from pipelines.kinds.inputs import SplitPaths
from pipelines.retrieval.correction import MOST
from pipelines.stages.runner import plan_stages
from preprocessing.storage.atomic import write_json_atomic
from vse_core.similarity import similarity_matrix

OUTPUT = RESULTS / "hubs.json"
STUDIED = "VSE-infinity, learned sigmoid loss, feature dropout"
STUDIED_FEATURES = "EfficientNet-Lite2, 9x9"
BANKS = (200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
NEIGHBOURS = (10, 50, 100)


def configs_of(row: Row, features: str, settings: list[str]) -> list[PipelineConfig]:
    """Return the configurations of a run of the leaderboard, one for each of its models."""
    weights = f"{DATA}/{FEATURES[features]}"
    return [
        load_config(
            CONFIGS / f"{row.config}.yaml",
            [f"features={{extractor: {extractor}, weights: '{weights}', actors: 2}}", *row.overrides, *settings],
        )
        for extractor in ("grid", *row.others)
    ]


def vectors_of(config: PipelineConfig, kept: Path) -> Vectors | None:
    """Return the vectors of a trained model; None if it is not trained yet."""
    plans = plan_stages(config, last="train")
    if not plans["train"].complete:
        return None
    file = kept / f"{plans['train'].fingerprint[:16]}.safetensors"
    if not file.is_file():
        shards, model = plans["extract"].outputs, plans["train"].output("best")
        graphs = plans["parse"].outputs if config.reads_graphs else {}
        train, dev = config.dataset.train_split, config.dataset.eval_split
        embedded = embed_split(config, shards[dev], graphs, model)
        bank = embed_bank(config, SplitPaths(shards[train], graphs.get(train)), embedded.texts, model, 10**6)
        gallery = embedded.gallery
        found = {"images": gallery.images_BKD, "texts": gallery.texts_CD, "bank_images": bank[0], "bank_texts": bank[1]}
        found["counts"] = torch.tensor([len(record.captions) for record in gallery.records])
        found["temperature"] = torch.tensor(learned_temperature(model) or 0.0)
        kept.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, file)
    read = load_file(file)
    parts = (read[name] for name in ("images", "texts", "bank_images", "bank_texts"))
    return Vectors(*parts, read["counts"].tolist(), float(read["temperature"]))


def joined(members: list[Vectors]) -> Vectors:
    """Return the vectors of models of one view together: their products are the mean of the models' similarities."""
    if len(members) == 1:
        return members[0]
    names = ("images_BKD", "texts_CD", "bank_images_MKD", "bank_texts_MD")
    stacked = (torch.cat([getattr(each, name) for each in members], dim=-1) / len(members) ** 0.5 for name in names)
    learned = [each.temperature for each in members]
    return Vectors(*stacked, members[0].counts, statistics.geometric_mean(learned) if all(learned) else 0.0)


def study(vectors: Vectors) -> dict[str, Any]:
    """Return what the correction adds to RSUM, with its interval, by one choice after another."""
    before = vectors.parts()

    def of(chosen: Vectors, temperature: float) -> list[float]:
        return gain(chosen.parts(*chosen.biases(temperature)), before)

    bank, learned = vectors.sampled(MOST), vectors.temperature
    of_images_B, of_captions_C = bank.biases(learned)
    own = replace(vectors, bank_images_MKD=vectors.images_BKD, bank_texts_MD=vectors.texts_CD)
    return {
        "captions in the bank": {str(size): of(vectors.sampled(size), learned) for size in BANKS},
        "temperature": {str(temperature): of(bank, temperature) for temperature in TEMPERATURES},
        "one direction": {
            "images alone": gain(vectors.parts(of_images_B), before),
            "captions alone": gain(vectors.parts(0.0, of_captions_C), before),
        },
        "CSLS, neighbours": {str(k): gain(csls(bank, k), before) for k in NEIGHBOURS},
        "not admissible: the development split as its own bank": of(own, learned),
    }


def csls(vectors: Vectors, neighbours: int) -> Any:
    """Return the parts of RSUM with the mean similarity of the nearest of the bank subtracted (Conneau et al. 2018)."""
    near_B = similarity_matrix(vectors.images_BKD, vectors.bank_texts_MD).topk(neighbours, dim=1).values.mean(dim=1)
    near_C = similarity_matrix(vectors.bank_images_MKD, vectors.texts_CD).topk(neighbours, dim=0).values.mean(dim=0)
    # CSLS is twice the similarity less both means, of which the query's changes no rank.
    return vectors.parts(near_B / 2, near_C / 2)


def main() -> None:
    """Correct every run that there is, study one of them, and write the results with those of the leaderboard."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, required=True, help="of the leaderboard's runs")
    parser.add_argument("--minilm", help="folder of MiniLM's weights; without it the rows that read it are left out")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all rows")
    options = parser.parse_args()
    os.environ |= {} if options.minilm is None else {"VSE_MINILM": options.minilm}
    work, kept = options.directory.resolve(), options.directory.resolve() / "vectors"
    result = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.is_file() else {"features": {}}
    result |= origin()
    rows = {name: row for name, row in ROWS.items() if options.minilm is not None or not row.reads_minilm}
    for features in FEATURES:
        of_features = result["features"].setdefault(features, {})
        for name, seed in ((name, seed) for name in rows for seed in range(3)):
            configs = configs_of(rows[name], features, [*options.set, f"seed={seed}", f"work_dir={work}"])
            members = [vectors_of(config, kept) for config in configs]
            found = [each for each in members if each is not None]
            if len(found) < len(members):
                continue
            vectors = joined(found)
            of_features.setdefault(name, {})[str(seed)] = keep_both(features, name, seed, vectors)
            print(features, name, seed, of_features[name][str(seed)], flush=True)
            if (features, name, seed) == (STUDIED_FEATURES, STUDIED, 0):
                result["study"] = study(vectors)
    result["summary"] = {features: summarized(features) for features in FEATURES}
    write_json_atomic(OUTPUT, result)


if __name__ == "__main__":
    main()
