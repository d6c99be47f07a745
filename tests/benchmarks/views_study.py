"""How different the views of trained MV-VSE models are, and what each is worth alone.

Of every model of several GPO views: the mean cosine of the views' embeddings of the development images, the
difference of their GPO weights (sum of absolute differences; 2 where they share no rank), and dev RSUM of each view
alone and of all together. Beside them models like the first one, untrained. Models of earlier runs stay in the result.

Run: python tests/benchmarks/views_study.py --model LABEL WORK_DIR/train/.../best-007 --shards WORK_DIR/extract/dev/...
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS
from torch import Tensor

from pipelines.retrieval.gallery import build_gallery
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.models import build_model, load_model
from vse_core.models.model import Model

STARTS = range(3)


def differences(model: Model, images_BKD: Tensor, regions: int) -> dict[str, Any]:
    """Return how the views differ, pair by pair."""
    pooling: Any = model.image_encoder.pooling
    lengths = torch.tensor([regions])
    with torch.inference_mode():
        weights_KN = torch.stack([view.coefficients(lengths, regions).flatten() for view in pooling.views])
    pairs = list(itertools.combinations(range(len(weights_KN)), 2))
    cosines = [(images_BKD[:, one] * images_BKD[:, other]).sum(-1).mean().item() for one, other in pairs]
    apart = [(weights_KN[one] - weights_KN[other]).abs().sum().item() for one, other in pairs]
    return {
        "cosines": [round(value, 4) for value in cosines],
        "weights_apart": [round(value, 3) for value in apart],
    }


def studied(model: Model, encoder_folder: Path, reader: ShardReader) -> dict[str, Any]:
    """Return the figures of one model."""
    gallery = build_gallery(model.eval(), reader, load_caption_encoder(encoder_folder), "")
    images_BKD, texts_CD = gallery.images_BKD, gallery.texts_CD
    captions = [len(record.captions) for record in gallery.records]
    together = evaluate_retrieval(images_BKD, texts_CD, captions).rsum
    alone = [evaluate_retrieval(images_BKD[:, [view]], texts_CD, captions).rsum for view in range(images_BKD.shape[1])]
    return differences(model, images_BKD, len(reader.features(0))) | {
        "rsum": round(together, 1),
        "rsum_of_each_view": [round(value, 1) for value in alone],
    }


def main() -> None:
    """Study all models and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("LABEL", "BEST_FOLDER"))
    parser.add_argument("--shards", type=Path, required=True, help="features of the development images")
    parser.add_argument("--output", type=Path, default=RESULTS / "views_study.json", help="JSON file for the result")
    arguments = parser.parse_args()
    reader = ShardReader(arguments.shards, "grid")
    first = Path(arguments.model[0][1])
    found = {}
    for seed in STARTS:
        torch.manual_seed(seed)
        found[f"untrained, seed {seed}"] = studied(build_model(**load_model(first).specification), first, reader)
    for label, folder in arguments.model:
        found[label] = studied(load_model(Path(folder)), Path(folder), reader)
    for label, figures in found.items():
        print(label, figures)
    earlier = json.loads(arguments.output.read_text(encoding="utf-8"))["models"] if arguments.output.is_file() else {}
    write_json_atomic(arguments.output, {"models": earlier | found})


if __name__ == "__main__":
    main()
