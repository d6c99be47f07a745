"""Images a second of each part of the BUTD extractor at its published size, and the part that limits it.

The network has random weights: they cost what trained ones do, but for the boxes that remain of each class. Photographs
are read again and again, a batch at a time, until the time is up; each part is timed by itself, with the device waited
for. Loading runs in one thread here, and in several next to the network in the extraction stage.

Run: python tests/benchmarks/butd.py --device cuda --dtype bfloat16 --batch 8
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from preprocessing.features.butd.detector import Detector
from preprocessing.features.butd.extractor import ButdExtractor
from preprocessing.storage.atomic import write_json_atomic

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results") / "butd.json"
Result = TypeVar("Result")


class Stopwatch:
    """Seconds spent in each part."""

    def __init__(self, device: str) -> None:
        self.seconds: Counter[str] = Counter()
        self._wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def time(self, part: str, work: Callable[[], Result]) -> Result:
        """Do a piece of work and add the time it takes."""
        self._wait()
        start = time.perf_counter()
        result = work()
        self._wait()
        self.seconds[part] += time.perf_counter() - start
        return result


@torch.inference_mode()
def measure(extractor: ButdExtractor, uris: Iterator[str], batch: int, seconds: float, device: str) -> dict[str, Any]:
    """Time the parts, a batch of photographs after the other, until the time is up."""
    watch, shapes = Stopwatch(device), []
    if device.startswith("cuda"):  # the first pass chooses and loads kernels
        extractor([extractor.load(uri) for uri in islice(uris, batch)])
    deadline = time.perf_counter() + seconds
    while not shapes or time.perf_counter() < deadline:
        shapes += _timed_batch(extractor, list(islice(uris, batch)), watch)
    rates = {part: len(shapes) / spent for part, spent in watch.seconds.items()}
    return {
        "images": len(shapes),
        "images_per_second": len(shapes) / sum(watch.seconds.values()),
        "parts_images_per_second": rates,
        "limited_by": min(rates, key=rates.__getitem__),
        "shapes": shapes[:10],
    }


def _timed_batch(extractor: ButdExtractor, uris: list[str], watch: Stopwatch) -> list[dict[str, list[int]]]:
    detector: Detector = extractor._detector
    items = watch.time("decode and resize", lambda: [extractor.load(uri) for uri in uris])
    maps, sizes = watch.time("backbone", lambda: detector.maps(items))
    proposals = watch.time("proposals", lambda: detector.proposals(maps, sizes, items))
    triples = list(zip(maps, proposals, items, strict=True))
    features = watch.time("region heads", lambda: [detector.roi_heads(one, boxes) for one, boxes, _ in triples])
    regions = watch.time(
        "selection",
        lambda: [detector.select(rows, boxes, item) for rows, (_, boxes, item) in zip(features, triples, strict=True)],
    )
    return [
        {
            "pixels": list(item.values.shape),
            "cells": list(size),
            "proposals": list(boxes.shape),
            "features": list(found.features_NF.shape),
        }
        for item, size, boxes, found in zip(items, sizes, proposals, regions, strict=True)
    ]


def main() -> None:
    """Measure and write the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=Path(os.environ.get("VSE_DATA") or ROOT / "../shared/data"))
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--variant", default="caffe", choices=["caffe", "detectron2"])
    arguments.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments.add_argument("--batch", type=int, default=1, help="images in a pass of the backbone")
    arguments.add_argument("--threads", type=int, default=1, help="of torch, on the CPU")
    arguments.add_argument("--seconds", type=float, default=50, help="after which no further batch is begun")
    arguments.add_argument("--output", type=Path, default=RESULTS)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    folder = options.data.resolve() / "butd_reference" / "images"
    photographs = sorted(str(path) for path in folder.glob("*.jpg"))
    if not photographs:
        raise SystemExit(f"no photographs in {folder}; name the folder of real data with --data")
    extractor = ButdExtractor(variant=options.variant, dtype=options.dtype, device=options.device, seed=0)
    result = measure(extractor, cycle(photographs), options.batch, options.seconds, options.device)
    settings = {name: getattr(options, name) for name in ("device", "variant", "dtype", "batch", "threads")}
    on_gpu = options.device.startswith("cuda")
    result |= {
        **settings,
        "load_average": os.getloadavg()[0],
        "machine": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "versions": {name: version(name) for name in ("torch", "torchvision", "pillow")},
    }
    options.output.parent.mkdir(exist_ok=True)
    write_json_atomic(options.output, result)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
