"""Overhead of indexing images over the network alone: photographs through `index.py`, its parts, and the bare network.

Run: python tests/benchmarks/indexing.py --model BUNDLE --images FOLDER
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pipelines.inference.embedder import Embedder
from pipelines.retrieval import image_gallery
from pipelines.retrieval.image_files import list_images
from pipelines.retrieval.index_images import embed_files
from pipelines.runtime.cluster import KEEP_MEMORY
from preprocessing.features.images import decode_image, thumbnail
from preprocessing.storage.atomic import write_json_atomic

RESULTS = Path(__file__).with_name("results")
BATCH = 32


def seconds(work: Callable[[], object]) -> float:
    """Return the time that work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure each part over the same images, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="output directory of a register stage")
    parser.add_argument("--images", required=True, help="folder")
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--output", type=Path, default=RESULTS / "indexing.json")
    options = parser.parse_args()
    embedder = Embedder(options.model / "model", options.model / "extractor")
    files = list_images(options.images)[0][: options.count]
    embed_files(embedder, files[:BATCH], "")
    images = [Path(file.image_uri).read_bytes() for file in files]
    loaded = [embedder.decode(image) for image in images]
    batches = [loaded[start : start + BATCH] for start in range(0, len(loaded), BATCH)]
    rows = {
        "network": seconds(lambda: [embedder.embed_decoded(batch) for batch in batches]),
        "decode": seconds(lambda: [embedder.decode(image) for image in images]),
        "thumbnail": seconds(lambda: [thumbnail(decode_image(image)) for image in images]),
        "both": seconds(lambda: [embedder.decode(image, thumbnail) for image in images]),
        "embed": seconds(lambda: embed_files(embedder, files, options.images)),
        "list": seconds(lambda: list_images(options.images)),
    }
    embedded, _ = embed_files(embedder, files, options.images)
    assert embedded is not None
    with tempfile.TemporaryDirectory() as folder:
        rows["write"] = seconds(lambda: image_gallery.write_part(Path(folder), Path(folder) / "parts", embedded))
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads",
        "images": len(files),
        "rows": [
            {"what": what, "seconds": round(taken, 3), "images_per_second": round(len(files) / taken, 1)}
            for what, taken in rows.items()
        ],
        "overhead": round(rows["embed"] / rows["network"] - 1, 3),
    }
    write_json_atomic(options.output, result)
    print(result)


if __name__ == "__main__":
    # The allocator reads its settings when a process starts: those of the processes that index images.
    if not KEEP_MEMORY.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEP_MEMORY)
    main()
