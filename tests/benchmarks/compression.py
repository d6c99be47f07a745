"""Small vectors: bytes, milliseconds, recall and RSUM of each form, on Flickr8k's development split.

Run: python tests/benchmarks/compression.py VECTORS.safetensors ...

Each file has vectors of a trained model, such as tests/benchmarks/hubs.py keeps in FOLDER/vectors: `images` (B, K, D)
and `texts` (C, D) of the split, `counts` (captions of each image), `bank_images` and `bank_texts` of the training
split, and the `temperature`.

RSUM and recall are means over the models, hubs corrected. Times are CPU time of one thread, over images that are made
between pairs of training images, with training captions as queries.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import faiss
import torch
from reader import RESULTS, origin
from safetensors.torch import load_file
from torch import Tensor, nn

from pipelines.retrieval.correction import MOST, Correction
from pipelines.retrieval.faiss_index import GalleryIndex
from pipelines.retrieval.gallery import Biases, Gallery
from pipelines.stages.index.run import gallery_rsum, index_rsum
from preprocessing.datasets.record import Caption, Record
from preprocessing.storage.atomic import write_json_atomic

OUTPUT = RESULTS / "compression.json"
FORMS = ("", "float16", "int8", "pca256", "pca256-int8", "pca128", "pca128-int8", "pca64-int8")
# Galleries that are timed: the largest exact one of images without captions, and one that is searched approximately.
EXACT, APPROXIMATE = 200_000, 200_001


def read(path: Path) -> tuple[Gallery, Correction]:
    """A model's gallery, with its biases, and its bank of training vectors."""
    vectors = load_file(path)
    generator = torch.Generator().manual_seed(0)
    images, texts = (
        vectors[name][torch.randperm(len(vectors[name]), generator=generator)[:MOST]]
        for name in ("bank_images", "bank_texts")
    )
    bank = Correction(images, texts, float(vectors["temperature"]), "learned in training")
    counts = vectors["counts"].tolist()
    records = (Record(str(image), "", "dev", (Caption("", ""),) * count) for image, count in enumerate(counts))
    return bank.of_gallery(Gallery(vectors["images"], vectors["texts"], tuple(records))), bank


def quality(galleries: list[tuple[Gallery, Correction]], form: str) -> dict[str, float]:
    """RSUM by the vectors that are kept, and the share of the first ten images and captions that they find."""
    rows = []
    for gallery, bank in galleries:
        index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD, gallery.biases, form, bank)
        rsum = index_rsum(index, gallery) if form else gallery_rsum(gallery)
        rows.append({"rsum": rsum} | {f"recall_{name}": facts.recall for name, facts in index.facts().items()})
    return {name: round(statistics.mean(row[name] for row in rows), 4) for name in rows[0]}


def made_images(bank: Correction, count: int) -> tuple[Tensor, Tensor]:
    """Unit vectors between pairs of training images, and their biases, which are of about the right size."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(len(bank.images_MKD), (2, count), generator=generator)
    share = torch.rand(count, 1, generator=generator)
    first, second = bank.images_MKD[pairs[0], 0], bank.images_MKD[pairs[1], 0]
    images = nn.functional.normalize(first * share + second * (1 - share), dim=-1).unsqueeze(1)
    return images, bank.images_bias(bank.images_MKD)[pairs[0]]


def cost(bank: Correction, form: str, count: int, queries: int) -> dict[str, Any]:
    """Bytes and milliseconds of a search for ten images, one query at a time, and the recall that the index tells."""
    images_BKD, bias_B = made_images(bank, count)
    started = time.process_time()
    biases = Biases(bias_B, torch.empty(0))
    index = GalleryIndex.build(images_BKD, torch.empty(0, images_BKD.shape[-1]), biases, form, bank)
    building, times = time.process_time() - started, []
    for query in bank.texts_MD[: queries + 1].unsqueeze(1).split(1):
        started = time.process_time()
        index.images.search(query, 10)
        times.append(1000 * (time.process_time() - started))
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder), {})
        size = (Path(folder) / "images.faiss").stat().st_size
    return {
        "images": count,
        "kind": str(index.images.facts),
        "bytes_an_image": round(size / count, 1),
        "milliseconds": round(statistics.median(times[1:]), 3),
        "recall": index.images.facts.recall,
        "building_seconds": round(building, 1),
    }


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("vectors", type=Path, nargs="+")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    galleries = [read(path) for path in given.vectors]
    result: dict[str, Any] = {**origin(), "forms": {}}
    result |= {"models": len(galleries), "dim": galleries[0][0].images_BKD.shape[-1]}
    for form in FORMS:
        found = quality(galleries, form) | cost(galleries[0][1], form, EXACT, given.queries)
        result["forms"][form or "full"] = found
        write_json_atomic(given.output, result)
        print(form or "full", found, flush=True)
    result["approximate"] = cost(galleries[0][1], "pca128-int8", APPROXIMATE, given.queries)
    write_json_atomic(given.output, result)
    print(result["approximate"])


if __name__ == "__main__":
    main()
