"""PCME++ next to the sigmoid loss: retrieval by means and by the closed-form distance, and uncertainty against error.

Both are VSE-infinity on the first 2,000 photographs of Flickr8k, whose features are pooled to 3 x 3 cells in memory;
evaluated on the 1,000 development images.

Run: python pipelines/extract.py --config pipelines/config/data/flickr8k.yaml --set work_dir=WORK_DIR
     python tests/benchmarks/pcmepp_study.py --work WORK_DIR
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pcmepp import Normals, distributions
from reader import RESULTS, machine
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pipelines.config import PipelineConfig, load_config
from pipelines.inference.image_inputs import image_source
from pipelines.inference.text_embedder import text_batches
from pipelines.kinds.behaviour import tokens_alone
from pipelines.kinds.inputs import SplitData
from pipelines.stages.extract import plan as extract
from pipelines.training.left_out import KEPT
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.loader import image_batches
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.models import Model, load_model

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parents[1] / "pipelines/config/data/flickr8k.yaml"
SETTINGS = [
    "preset=small_data",
    f"plugins=[{HERE}/pcmepp.py]",
    "model.embed_dim=256",
    "training.epochs=6",
    "training.precision=bf16",
]
POOLING = [f"model.{side}.pooling={{name: probabilistic}}" for side in ("image", "text")]
SYSTEMS = {
    "sigmoid": ["loss={name: sigmoid, learned: true, mask_same_image: true}"],
    "pcmepp": ["loss={name: pcmepp, mask_same_image: true}", *POOLING],
    "pcmepp, no pseudo-positives": ["loss={name: pcmepp, pseudo_positives: 0, mask_same_image: true}", *POOLING],
}
IMAGES, SIDE, BINS = 2000, 3, 5


class PooledReader(ShardReader):
    """Shards of square grids, of which SIDE x SIDE means of cells are kept in memory."""

    def __init__(self, directory: Path, feature: str) -> None:
        super().__init__(directory, feature)
        self._means = [self._pooled(super(PooledReader, self).features(image)) for image in range(len(self))]

    def features(self, image: int) -> npt.NDArray[np.float16]:
        """Return the means of one image."""
        return self._means[image]

    @staticmethod
    def _pooled(cells_NF: npt.NDArray[np.float16]) -> npt.NDArray[np.float16]:
        side = round(len(cells_NF) ** 0.5)
        map_FSS = torch.from_numpy(cells_NF.astype(np.float32)).T.reshape(-1, side, side)
        return adaptive_avg_pool2d(map_FSS, SIDE).flatten(1).T.contiguous().numpy().astype(np.float16)


def train(config: PipelineConfig, train: SplitData, dev: SplitData, encoder: CaptionEncoder) -> tuple[Model, float]:
    """Train on the first images; returns the best model, and its RSUM by means."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, cpu = Path(temporary), torch.device("cpu")
        np.save(folder / KEPT, np.arange(train.reader.caption_starts[IMAGES]))
        trainer = Trainer(
            config.training_settings, train, dev, encoder, folder, cpu, None, lambda metrics: None, ("dev", "0")
        )
        rsums = [metrics["rsum"] for metrics in trainer.run()]
        return load_model(max(folder.glob("best-*"))), max(rsums)


def by_distance(images: Normals, texts: Normals) -> tuple[Tensor, Tensor]:
    """Return vectors whose inner products rank as the distances do: two dimensions more have the uncertainties."""
    halves = images.uncertainties_b.unsqueeze(1) / 2, texts.uncertainties_b.unsqueeze(1) / 2
    images_BE = torch.cat([images.means_bD, -halves[0], torch.ones_like(halves[0])], dim=1)
    return images_BE.unsqueeze(1), torch.cat([texts.means_bD, torch.ones_like(halves[1]), -halves[1]], dim=1)


def error_by_uncertainty(uncertainties: Tensor, found: Tensor) -> dict[str, Any]:
    """Return R@1 of the queries in equal bins of rising uncertainty, and its rank correlation with the error."""
    order = uncertainties.argsort(stable=True)
    bins = [round(100 * float(part.float().mean()), 1) for part in found[order].chunk(BINS)]
    return {"recall_at_1_by_uncertainty": bins, "spearman": round(float(spearmanr(uncertainties, ~found)[0]), 3)}


def evaluate(model: Model, dev: SplitData, encoder: CaptionEncoder) -> dict[str, Any]:
    """Evaluate PCME++ by both similarities, and its uncertainties."""
    assert dev.tokens is not None
    counts = dev.reader.caption_counts.tolist()
    images = distributions(model, "image", image_batches(image_source(model, dev.reader), 128))
    texts = distributions(model, "text", text_batches(dev.tokens, encoder.pad_id, tokens_alone, 128))
    means = evaluate_retrieval(images.means_bD.unsqueeze(1), texts.means_bD, counts).rsum
    distance = evaluate_retrieval(*by_distance(images, texts), counts).rsum
    similarities_BC = images.similarities(texts)
    owners_C = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    found = {
        "image": owners_C[similarities_BC.argmax(dim=1)] == torch.arange(len(counts)),
        "caption": similarities_BC.argmax(dim=0) == owners_C,
    }
    sides = {"image": images.uncertainties_b, "caption": texts.uncertainties_b}
    return {
        "rsum_means": round(means, 2),
        "rsum_distance": round(distance, 2),
        **{name: error_by_uncertainty(values, found[name]) for name, values in sides.items()},
        "uncertainty": {name: round(float(values.mean()), 4) for name, values in sides.items()},
    }


def main() -> None:
    """Train those that the output lacks, and write what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="work_dir with the features of flickr8k.yaml")
    parser.add_argument("--output", type=Path, default=RESULTS / "pcmepp.json", help="JSON file of the results")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override of the configuration")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    common = [f"work_dir={arguments.work}", *SETTINGS]
    configs = {name: load_config(CONFIG, [*common, *more, *arguments.set]) for name, more in SYSTEMS.items()}
    outputs = extract.plan(configs["sigmoid"], {}).outputs
    readers = {split: PooledReader(outputs[split], "grid") for split in ("train", "dev")}
    encoder = Vocabulary.build(list(readers["train"].texts())[: readers["train"].caption_starts[IMAGES]], 4)
    splits = [SplitData(each, tokens=TokenTable.encode(each.texts(), encoder)) for each in readers.values()]
    results: dict[str, Any] = json.loads(arguments.output.read_text()) if arguments.output.is_file() else {}
    results |= {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    for name, config in configs.items():
        if name in results:
            continue
        began = time.process_time()
        model, rsum = train(config, *splits, encoder)
        results[name] = {"rsum": round(rsum, 2), "seconds": round(time.process_time() - began, 1)}
        if name != "sigmoid":
            results[name] |= evaluate(model, splits[1], encoder)
        print(time.strftime("%H:%M:%S"), name, json.dumps(results[name]), flush=True)
        write_json_atomic(arguments.output, results)


if __name__ == "__main__":
    main()
