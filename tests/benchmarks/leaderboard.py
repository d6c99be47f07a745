"""The leaderboard of Flickr8k: every system on two sets of features, seeds, intervals, differences from VSE++ and CCA.

Run: python tests/benchmarks/leaderboard.py --directory FOLDER --minilm FOLDER
A run that was stopped resumes: what is in its result is not trained again, and the pipeline goes on in mid-epoch.

Every row is a configuration of the repository, trained, selected and evaluated on the development images alone, by the
commands that a user has. What a difference is made of, each image's part of RSUM, is kept beside the result.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
from reader import RESULTS, origin

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.named_models import NamedModel, evaluate_models
from pipelines.runtime.stage import manifest_in
from pipelines.stages.runner import plan_stages
from preprocessing.storage.atomic import write_bytes_atomic, write_json_atomic

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "pipelines" / "config" / "data"
DATA = "${VSE_DATA:-../shared/data}"
# Folders of the networks' weights.
FEATURES = {"MobileNetV2, 7x7": "mobilenet_v2", "EfficientNet-Lite2, 9x9": "efficientnet_lite2"}
MINILM = "MiniLM"
RESAMPLES = 10_000


@dataclass(frozen=True)
class Row:
    """A system: its configuration, what is set beyond it, and whether its texts are read by MiniLM.

    It is evaluated together with a model for each of `others`, extractors that read the same network otherwise.
    """

    config: str
    overrides: tuple[str, ...] = ()
    reads_minilm: bool = False
    others: tuple[str, ...] = ()


SIGMOID = "loss={name: sigmoid, learned: true, mask_same_image: true}"
# The loss and the aggregator of cells that won the search over the parts of the papers.
INFONCE = "loss={name: infonce, learned: true, temperature: 0.07, mask_same_image: true}"
PRINTED = "loss={name: adopt, variant: paper, temperature: 0.05, mask_same_image: true}"
MEAN = "model.image.pooling={name: mean}"
DROPOUT = "training.feature_dropout=0.3"
# The boxes of a pyramid stand for a detector's regions.
REGIONS = ("pyramid",)


def both_pooled_by(aggregator: str) -> tuple[str, ...]:
    """Return the settings by which cells and words are pooled by the same aggregator."""
    return tuple(f"model.{side}.pooling={{{aggregator}}}" for side in ("image", "text"))


ADPOOL = both_pooled_by("name: adpool")
EQUAL_LEVELS = both_pooled_by("name: adpool, token_share: 0.5")
PCMEPP = (
    f"plugins=[{Path(__file__).with_name('pcmepp.py')}]",
    "loss={name: pcmepp, pseudo_positives: 0, mask_same_image: true}",
    *both_pooled_by("name: probabilistic"),
)
ROWS: dict[str, Row] = {
    "VSE++": Row("flickr8k_vse_pp"),
    "VSE-infinity": Row("flickr8k"),
    "MV-VSE": Row("flickr8k_mv_vse"),
    "VSE+2AD": Row("flickr8k_vse_2ad"),
    "VSE+2AD, equations as printed": Row("flickr8k_vse_2ad", ("preset=vse_2ad_paper", PRINTED)),
    "VSE+2AD, MiniLM, equations as printed": Row("flickr8k_bert", ("preset=vse_2ad_paper_bert", PRINTED), True),
    "UniVSE": Row("flickr8k_univse"),
    "UniVSE, feature dropout": Row("flickr8k_univse", (DROPOUT,)),
    "UniVSE, BiGRU and GPO, feature dropout": Row("flickr8k_univse", (DROPOUT, *both_pooled_by("name: gpo"))),
    "VSE-C": Row("flickr8k_vse_c"),
    "VSE++, trained as UniVSE": Row("flickr8k_univse_baseline"),
    "VSE++, GRU, trained as UniVSE": Row("flickr8k_univse_gru"),
    "VSE-infinity, MiniLM": Row("flickr8k_bert", reads_minilm=True),
    "VSE-infinity, MiniLM, learned sigmoid loss": Row("flickr8k_best", ("training.feature_dropout=0",), True),
    "VSE-infinity, MiniLM, learned sigmoid loss, feature dropout": Row("flickr8k_best", reads_minilm=True),
    "VSE-infinity, MiniLM, learned InfoNCE, feature dropout": Row("flickr8k_best", (INFONCE,), True),
    "mean of cells, MiniLM, learned InfoNCE, feature dropout": Row("flickr8k_best", (INFONCE, MEAN), True),
    "VSE++, MiniLM, learned sigmoid loss, feature dropout": Row(
        "flickr8k_best", (*both_pooled_by("name: mean"), "model.image.mlp=false"), True
    ),
    "MV-VSE, MiniLM, learned sigmoid loss, feature dropout": Row("flickr8k_best", ("model.image.views=3",), True),
    "VSE+2AD, MiniLM, learned sigmoid loss, feature dropout": Row("flickr8k_best", ADPOOL, True),
    "VSE++, learned sigmoid loss": Row("flickr8k_vse_pp", (SIGMOID,)),
    "VSE++, learned sigmoid loss, feature dropout": Row("flickr8k_vse_pp", (SIGMOID, DROPOUT)),
    "VSE-infinity, learned sigmoid loss": Row("flickr8k", (SIGMOID,)),
    "VSE-infinity, learned sigmoid loss, feature dropout": Row("flickr8k_small_data"),
    "PCME++, feature dropout": Row("flickr8k_small_data", PCMEPP),
    "MV-VSE, learned sigmoid loss": Row("flickr8k_mv_vse", (SIGMOID,)),
    "MV-VSE, learned sigmoid loss, feature dropout": Row("flickr8k_mv_vse", (SIGMOID, DROPOUT)),
    "VSE+2AD, learned sigmoid loss": Row("flickr8k_vse_2ad", (SIGMOID,)),
    "VSE+2AD, learned sigmoid loss, feature dropout": Row("flickr8k_vse_2ad", (SIGMOID, DROPOUT)),
    "VSE+2AD, learned sigmoid loss, levels in equal parts": Row("flickr8k_vse_2ad", (SIGMOID, *EQUAL_LEVELS)),
}

ROWS |= {
    f"{name}, R+G": replace(ROWS[name], others=REGIONS)
    for name in (
        "VSE++",
        "VSE-infinity",
        "VSE-infinity, learned sigmoid loss, feature dropout",
        "VSE-infinity, MiniLM, learned sigmoid loss, feature dropout",
    )
}

Parts = npt.NDArray[np.float64]


def parts_of_rsum(queries: Path) -> Parts:
    """Return what each image and its captions add to RSUM, by the table of all queries that an evaluation writes."""
    table = pyarrow.parquet.read_table(queries, columns=["direction", "query_id", "true_id", "rank"]).to_pydict()
    places: dict[str, int] = {}
    parts: dict[str, dict[int, list[float]]] = {"i2t": {}, "t2i": {}}
    for way, query, true, rank in zip(*table.values(), strict=True):
        image = places.setdefault(query if way == "i2t" else true, len(places))
        parts[way].setdefault(image, []).append(100.0 * sum(rank <= k for k in (1, 5, 10)))
    total = np.zeros(len(places))
    for of_way in parts.values():
        queries_in_all = sum(map(len, of_way.values()))
        for image, found in of_way.items():
            total[image] += sum(found) / queries_in_all
    return total


@cache
def resamples(images: int) -> Parts:
    """Return how often each image is drawn, in each of many draws of as many images."""
    drawn = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), size=RESAMPLES)
    return drawn.astype(np.float64)


def interval(parts: Parts) -> list[float]:
    """Return the 95 % interval of the sum over images that are drawn again and again."""
    return [round(float(value), 1) for value in np.quantile(resamples(len(parts)) @ parts, (0.025, 0.975))]


def trained(config: Path, overrides: list[str]) -> PipelineConfig:
    """Run the pipeline up to the evaluation; return its configuration."""
    given = [part for override in overrides for part in ("--set", override)]
    loaded = load_config(config, overrides)
    for verb in ("extract", *(["parse"] if loaded.reads_graphs else []), "train", "evaluate"):
        subprocess.run([sys.executable, f"pipelines/{verb}.py", "--config", str(config), *given], cwd=ROOT, check=True)
    return loaded


def run(row: Row, features: str, settings: list[str]) -> tuple[dict[str, Any], Parts]:
    """Train and evaluate the models of a row, by their retrieval alone; return what is kept of them."""
    settings = ["evaluation.protocols=[retrieval]", *settings]
    config, weights = CONFIGS / f"{row.config}.yaml", f"{DATA}/{FEATURES[features]}"
    extractors = ("grid", *row.others)
    reads = [f"features={{extractor: {extractor}, weights: '{weights}', actors: 2}}" for extractor in extractors]
    return measured([trained(config, [read, *settings]) for read in reads])


def measured(configs: Sequence[PipelineConfig]) -> tuple[dict[str, Any], Parts]:
    """Return the figures of a finished run, and each image's part of its RSUM; of several, of all together."""
    plans = [plan_stages(config, last="evaluate") for config in configs]
    manifests = [manifest_in(each["train"].directory) for each in plans]
    evaluated = plans[0]["evaluate"].directory
    if len(plans) > 1:
        pairs = zip(configs, plans, strict=True)
        models = [NamedModel(each["train"].fingerprint, config, each["train"].output("best")) for config, each in pairs]
        evaluated = evaluate_models(models).directory
    metrics = manifest_in(evaluated)["metrics"]
    figures = {
        "metrics": {name: value for name, value in metrics.items() if "_r" in name or name == "rsum"},
        "rsum_by_epoch": [round(epoch["rsum"], 2) for epoch in manifests[0]["history"]],
        "training_seconds": sum(manifest["seconds"] for manifest in manifests),
        "fingerprint": " ".join(manifest["fingerprint"] for manifest in manifests),
    }
    return figures, parts_of_rsum(evaluated / "retrieval_queries.parquet")


@dataclass(frozen=True)
class Board:
    """A table of rows: what it is called, and the rows from which each of them is told apart."""

    name: str
    rows: Mapping[str, Row]
    compared: tuple[str, ...]

    @property
    def output(self) -> Path:
        return RESULTS / f"{self.name}.json"

    @property
    def _parts(self) -> Path:
        return RESULTS / f"{self.name}_parts.npz"

    def read_parts(self) -> dict[str, Parts]:
        """Return each image's part of RSUM, by features, row and seed."""
        if not self._parts.is_file():
            return {}
        with np.load(self._parts, allow_pickle=False) as kept:
            return {name: kept[name].astype(np.float64) for name in kept.files}

    def keep_parts(self, features: str, row: str, seed: int, parts: Parts) -> None:
        """Add a run's parts; single precision tells them apart, and compresses."""
        data = io.BytesIO()
        kept = self.read_parts() | {f"{features} | {row} | {seed}": parts}
        np.savez_compressed(data, allow_pickle=False, **{name: kept[name].astype(np.float32) for name in sorted(kept)})
        write_bytes_atomic(self._parts, data.getvalue())

    def parts_by_row(self, features: str) -> dict[str, list[Parts]]:
        """Return each image's part of RSUM for the seeds of each row."""
        parts: dict[str, list[Parts]] = {}
        for name, of_run in self.read_parts().items():
            of_features, row, _ = name.split(" | ")
            if of_features == features:
                parts.setdefault(row, []).append(of_run)
        return parts

    def summarized(self, features: str) -> dict[str, Any]:
        """Return mean, interval and differences of every row, over the seeds that it has."""
        parts = self.parts_by_row(features)
        means = {row: np.mean(of_seeds, axis=0) for row, of_seeds in parts.items()}
        return {
            row: {
                "rsum": round(float(mean.sum()), 1),
                "interval": interval(mean),
                "seeds": len(parts[row]),
                "over": {
                    name: [round(float((mean - means[name]).sum()), 1), *interval(mean - means[name])]
                    for name in self.compared
                    if name in means and name != row
                },
            }
            for row, mean in means.items()
        }


# tests/benchmarks/linear_cca.py adds the linear rows.
LEADERBOARD = Board("leaderboard", ROWS, ("VSE++", "linear CCA TF-IDF", "linear CCA MiniLM"))


def main(board: Board) -> None:
    """Train what is missing, seed by seed, and write each row as soon as it is there."""
    parser = argparse.ArgumentParser(description=f"Train the missing rows of {board.output.name}.")
    parser.add_argument("--directory", type=Path, required=True, help="of the runs")
    parser.add_argument("--minilm", help="folder of MiniLM's weights; without it the rows that read it are left out")
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--rows", nargs="+", default=list(board.rows), choices=list(board.rows))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all rows")
    arguments = parser.parse_args()
    os.environ |= {} if arguments.minilm is None else {"VSE_MINILM": arguments.minilm}
    result: dict[str, Any] = (
        json.loads(board.output.read_text(encoding="utf-8")) if board.output.is_file() else {"features": {}}
    )
    result |= {**origin(), "set_for_all": arguments.set}
    wanted = [
        (seed, features, name)
        for seed in range(arguments.seeds)
        for features in arguments.features
        for name in arguments.rows
        if arguments.minilm is not None or not board.rows[name].reads_minilm
    ]
    work = arguments.directory.resolve()
    for seed, features, name in wanted:
        of_features = result["features"].setdefault(features, {"runs": {}})
        runs = of_features["runs"].setdefault(name, {})
        if str(seed) not in runs:
            row = board.rows[name]
            settings = [*row.overrides, *arguments.set, f"seed={seed}", f"work_dir={work}"]
            runs[str(seed)], parts = run(row, features, settings)
            board.keep_parts(features, name, seed, parts)
        of_features["summary"] = board.summarized(features)
        write_json_atomic(board.output, result)
        print(features, name, seed, of_features["summary"][name], flush=True)


if __name__ == "__main__":
    main(LEADERBOARD)
