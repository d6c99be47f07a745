"""What the aggregator of trained VSE+2AD models does to an image: how many cells it weighs, what each level is worth.

Of every model: the effective number of cells of each level (the exponential of the entropy of its weights, on average
over dimensions and images), the share of the token level in the mixture, and dev RSUM as trained, with each level alone
and with the mean of the cells in the aggregator's place.

Run: python tests/benchmarks/adpool_study.py --model LABEL WORK_DIR/train/.../best-007 --shards WORK_DIR/extract/dev/...
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from reader import RESULTS
from torch import Tensor

from pipelines.retrieval.gallery import build_gallery
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.models import load_model
from vse_core.models.model import Model
from vse_core.pooling.masks import softmax_weighted_sum
from vse_core.pooling.sorting import sort_sets

WEIGHED_IMAGES = 200


def effective_cells(logits_BND: Tensor) -> float:
    """Return the exponential of the entropy of the softmax over the cells, on average."""
    weights_BND = logits_BND.softmax(dim=1)
    return float((-(weights_BND * weights_BND.clamp_min(1e-12).log()).sum(dim=1)).exp().mean())


def weighed(model: Model, reader: ShardReader) -> dict[str, float]:
    """Return the effective cells of both levels, and the share of the token level."""
    encoder: Any = model.image_encoder
    features_BNF = torch.stack([torch.from_numpy(reader.features(image)).float() for image in range(WEIGHED_IMAGES)])
    with torch.inference_mode():
        rows_BND = encoder.fc(features_BNF)
        ranked_BND = sort_sets(rows_BND, torch.full((len(rows_BND),), rows_BND.shape[1]))
        logits_BND = torch.relu(encoder.pooling.linear(ranked_BND))
        valid_BN1 = torch.ones_like(ranked_BND[..., :1], dtype=torch.bool)
        levels = [softmax_weighted_sum(logits, ranked_BND, valid_BN1) for logits in (logits_BND, ranked_BND)]
        shares_B21 = encoder.pooling.balance(torch.stack(levels, dim=1)).softmax(dim=1)
    return {
        "cells": rows_BND.shape[1],
        "cells_of_the_token_level": round(effective_cells(logits_BND), 1),
        "cells_of_the_embedding_level": round(effective_cells(ranked_BND), 1),
        "token_share": round(float(shares_B21[:, 0].mean()), 3),
    }


def studied(folder: Path, reader: ShardReader) -> dict[str, Any]:
    """Return the figures of one model; only the images' aggregator is replaced, never the captions'."""
    model = load_model(folder).eval()
    pooling: Any = model.image_encoder.pooling
    texts = load_caption_encoder(folder)

    def rsum() -> float:
        gallery = build_gallery(model, reader, texts, "")
        captions = [len(record.captions) for record in gallery.records]
        return round(evaluate_retrieval(gallery.images_BKD, gallery.texts_CD, captions).rsum, 1)

    def with_replaced(method: str, replacement: Callable[..., Tensor]) -> float:
        with mock.patch.object(pooling, method, replacement):
            return rsum()

    return weighed(model, reader) | {
        "rsum": rsum(),
        "rsum_token_level": with_replaced("_mixture", lambda token_BD, embedding_BD: token_BD),
        "rsum_embedding_level": with_replaced("_mixture", lambda token_BD, embedding_BD: embedding_BD),
        "rsum_mean": with_replaced("_pool", lambda features_BND, lengths_B, valid_BN1: features_BND.mean(dim=1)),
    }


def main() -> None:
    """Study all models and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("LABEL", "BEST_FOLDER"))
    parser.add_argument("--shards", type=Path, required=True, help="features of the development images")
    parser.add_argument("--output", type=Path, default=RESULTS / "adpool_study.json", help="JSON file for the result")
    arguments = parser.parse_args()
    reader = ShardReader(arguments.shards, "grid")
    found = {label: studied(Path(folder), reader) for label, folder in arguments.model}
    for label, figures in found.items():
        print(label, figures)
    write_json_atomic(arguments.output, {"models": found})


if __name__ == "__main__":
    main()
