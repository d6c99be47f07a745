"""What PCME++'s uncertainties tell: retrieval by means and by the closed-form distance, and errors by uncertainty.

Run: python tests/benchmarks/uncertainty.py with the --directory and --set of the leaderboard's run of PCME++

Runs whose training is not finished there are left out. All figures are of the development split.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from corrected import parts_of_similarities
from hubs import configs_of
from leaderboard import FEATURES, ROWS
from reader import RESULTS, origin
from scipy.stats import spearmanr
from torch import Tensor

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluator import embed_split
from pipelines.inference.image_inputs import image_source
from pipelines.stages.runner import plan_stages
from preprocessing.loading.loader import image_batches
from preprocessing.storage.atomic import write_json_atomic

OUTPUT = RESULTS / "pcmepp.json"
ROW = "PCME++, feature dropout"
BINS, BATCH = 5, 128


def rsum(similarities_BC: Tensor, owners_C: Tensor) -> float:
    """Return RSUM of both directions."""
    return round(float(parts_of_similarities(similarities_BC, similarities_BC, owners_C).sum()), 2)


def error_by_uncertainty(uncertainties: Tensor, found: Tensor) -> dict[str, Any]:
    """Return R@1 of the queries in equal bins of rising uncertainty, and its rank correlation with the error."""
    in_order = found[uncertainties.argsort(stable=True)]
    return {
        "mean": round(float(uncertainties.mean()), 4),
        "recall_at_1_by_uncertainty": [round(100 * float(part.float().mean()), 1) for part in in_order.chunk(BINS)],
        "spearman": round(float(spearmanr(uncertainties, ~found)[0]), 3),
    }


def measured(config: PipelineConfig) -> dict[str, Any] | None:
    """Return the figures of a trained model; None if it is not trained yet."""
    plans = plan_stages(config, last="train")
    if not plans["train"].complete:
        return None
    folder = plans["train"].output("best")
    embedded = embed_split(config, plans["extract"].outputs[config.dataset.eval_split], {}, folder)
    model, reader = embedded.texts.model, embedded.reader
    distributions, counts = sys.modules["pcmepp"].distributions, reader.caption_counts.tolist()
    images = distributions(model, "image", image_batches(image_source(model, reader), BATCH))
    texts = distributions(model, "text", embedded.texts.batches(list(reader.texts())))
    similarities_BC, rows_B = images.similarities(texts), torch.arange(len(counts))
    owners_C = rows_B.repeat_interleave(torch.tensor(counts))
    return {
        "rsum_means": rsum(images.means_bD @ texts.means_bD.T, owners_C),
        "rsum_distance": rsum(similarities_BC, owners_C),
        "image": error_by_uncertainty(images.uncertainties_b, owners_C[similarities_BC.argmax(dim=1)] == rows_B),
        "caption": error_by_uncertainty(texts.uncertainties_b, similarities_BC.argmax(dim=0) == owners_C),
    }


def main() -> None:
    """Measure every run of PCME++ that there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, required=True, help="of the leaderboard's runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all rows")
    options = parser.parse_args()
    result = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.is_file() else {"features": {}}
    result |= origin()
    for features, seed in ((features, seed) for features in FEATURES for seed in range(3)):
        settings = [*options.set, f"seed={seed}", f"work_dir={options.directory.resolve()}"]
        (config,) = configs_of(ROWS[ROW], features, settings)
        found = measured(config)
        if found is not None:
            result["features"].setdefault(features, {})[str(seed)] = found
            print(features, seed, found, flush=True)
    write_json_atomic(OUTPUT, result)


if __name__ == "__main__":
    main()
