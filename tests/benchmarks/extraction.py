"""Speed of the extraction stage against bare loops over the same network.

Both decode photographs of Flickr8k and compute the same features in batches of the same size on the same cores. The
stage's time has everything in it: the start of its actors, the writing and hashing of shards. The bare loops are timed
with their network loaded, before and after the stage, so that what else happens on the machine shows. Against a stage
of N actors stand bare loops on N cores: one process with N threads, and N processes with one thread, as torch comes or
with the stage's setting of the memory allocator; what counts is the fastest.

Run: python tests/benchmarks/extraction.py
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, origin

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime import cluster
from pipelines.stages.extract import run as extract_run
from preprocessing.datasets import build_dataset
from preprocessing.features import build_extractor
from preprocessing.storage.atomic import write_json_atomic

ROOT = Path(__file__).resolve().parents[2]


class NoTracker:
    """Stands in for the tracker."""

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        pass

    def log_params(self, params: Mapping[str, Any]) -> None:
        pass

    def log_dict(self, content: Any, name: str) -> None:
        pass


def photographs(data: Path, images: int, folder: Path, actors: int) -> PipelineConfig:
    """The configuration of a fresh extraction of the first photographs of Flickr8k by `actors` actors."""
    names: list[str] = []
    for split in ("train", "dev"):
        names += (data / "flickr8k" / f"Flickr_8k.{split}Images.txt").read_text().split()
    listed = folder / f"{images}.txt"
    listed.write_text("\n".join(names[:images]) + "\n")
    overrides = [
        f"work_dir={tempfile.mkdtemp(dir=folder)}",
        f"dataset.splits={{train: {listed}, dev: {listed}}}",
        "dataset.eval_split=train",
        f"features.actors={actors}",
        "features.cpus_per_actor=1",
    ]
    os.environ["VSE_DATA"] = str(data)
    return load_config(ROOT / "pipelines" / "config" / "data" / "flickr8k.yaml", overrides)


def time_bare_loop(config: PipelineConfig, processes: int, threads: int) -> float:
    """Images a second of decoding and computing, batch after batch, with nothing around it."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    uris = [record.image_uri for record in dataset.records("train")]
    context = multiprocessing.get_context("spawn")
    start_together = context.Barrier(processes)
    seconds = context.Queue()
    options, batch_size = config.features.options(), config.features.batch_size
    workers = [
        context.Process(
            target=bare_loop, args=(uris[part::processes], options, batch_size, threads, start_together, seconds)
        )
        for part in range(processes)
    ]
    for worker in workers:
        worker.start()
    slowest = max(seconds.get() for _ in workers)
    for worker in workers:
        worker.join()
    return len(uris) / slowest


def time_bare_loops(config: PipelineConfig, cores: int) -> dict[str, float]:
    """Images a second of every kind of loop."""
    rates = {}
    for allocator, environment in (("", {}), (", memory kept", cluster.KEEP_MEMORY)):
        os.environ.update(environment)  # the loops' processes inherit it, and read it as they start
        for processes in sorted({1, cores}):
            threads = cores // processes
            rates[f"{processes} processes, {threads} threads{allocator}"] = time_bare_loop(config, processes, threads)
        for name in environment:
            del os.environ[name]
    return rates


def bare_loop(
    uris: list[str], options: dict[str, Any], batch_size: int, threads: int, start_together: Any, seconds: Any
) -> None:
    """One process of the bare loop; tells how long it took once its network was loaded."""
    torch.set_num_threads(threads)
    extractor = build_extractor("grid", **options)
    start_together.wait()
    start = time.perf_counter()
    for first in range(0, len(uris), batch_size):
        extractor([extractor.load(uri) for uri in uris[first : first + batch_size]])
    seconds.put(time.perf_counter() - start)


def time_stage(config: PipelineConfig) -> dict[str, float]:
    """Images a second of the whole stage."""
    start = time.perf_counter()
    extract_run.run(config, {}, NoTracker())  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    images = len((config.dataset.splits["train"]).read_text().split())  # type: ignore[union-attr]
    return {"images": images, "images_per_second": images / seconds}


def compare(data: Path, folder: Path, loop: PipelineConfig, actors: int, images: int) -> dict[str, Any]:
    """Time the stage between two runs of bare loops on as many cores as it has actors."""
    load, before = os.getloadavg()[0], time_bare_loops(loop, actors)
    stage = time_stage(photographs(data, images, folder, actors))
    after = time_bare_loops(loop, actors)
    beside = statistics.mean(max(loops.values()) for loops in (before, after))
    return {
        "stage": stage,
        "bare_loops": [before, after],
        "ratio": stage["images_per_second"] / beside,
        "load_average_before": load,
    }


def main() -> None:
    """Measure and write the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=Path(os.environ.get("VSE_DATA") or ROOT / "../shared/data"))
    arguments.add_argument("--loop", type=int, default=400, help="photographs of a bare loop")
    arguments.add_argument("--many", type=int, default=7000, help="photographs of the stage whose speed is compared")
    arguments.add_argument("--output", type=Path, default=RESULTS / "extraction.json")
    options = arguments.parse_args()
    data, cores = options.data.resolve(), cluster.local_cpus()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop = photographs(data, options.loop, folder, 1)
        cluster.connect(loop.ray.address)
        by_actors = {actors: compare(data, folder, loop, actors, options.many) for actors in sorted({1, cores})}
        cluster.disconnect()
    result = {**origin(), "by_actors": by_actors, "cores": cores}
    write_json_atomic(options.output, result)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
