"""How fast the extraction stage is against bare loops over the same network, and whether its memory grows.

All decode the same photographs and compute the same features on the same cores, in turns, so that what else happens on
the machine meets all of them. The stage also starts actors, writes shards and hashes them. A bare loop is one process
with as many threads as there are cores, or one process with one thread for each core, whichever is faster.

Run: python tests/benchmarks/extraction.py
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from pipelines import cluster, extract
from pipelines.config import PipelineConfig, load_config
from preprocessing.datasets import build_dataset
from preprocessing.features import build_extractor
from preprocessing.shards.storage import write_json_atomic

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results") / "extraction.json"
ACTOR_PROCESS = "ray::_Extraction"


class Stopwatch:
    """Stands in for the tracker: remembers when how many images were done."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        if "extract/images_per_second" in metrics:
            self.marks.append((time.perf_counter(), step))

    def log_params(self, params: Mapping[str, Any]) -> None:
        pass

    def log_dict(self, content: Any, name: str) -> None:
        pass


class PeakMemory:
    """The highest resident memory of any actor of the stage while the block runs, in MB."""

    def __enter__(self) -> PeakMemory:
        self.megabytes = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if (process / "cmdline").read_bytes().startswith(ACTOR_PROCESS.encode()):
                        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
                        self.megabytes = max(self.megabytes, int(status["VmHWM"].split()[0]) / 1024)
                except (OSError, KeyError):  # it has just ended
                    continue


def photographs(data: Path, images: int, shard_size: int, folder: Path, cores: int) -> PipelineConfig:
    """The configuration of a fresh extraction of the first photographs of Flickr8k, one actor for each core."""
    names: list[str] = []
    for split in ("train", "dev"):
        names += (data / "flickr8k" / f"Flickr_8k.{split}Images.txt").read_text().split()
    listed = folder / f"{images}.txt"
    listed.write_text("\n".join(names[:images]) + "\n")
    overrides = [
        f"work_dir={tempfile.mkdtemp(dir=folder)}",
        f"dataset.splits={{train: {listed}, dev: {listed}}}",
        "dataset.eval_split=train",
        f"features.actors={cores}",
        "features.cpus_per_actor=1",
        f"features.shard_size={shard_size}",
    ]
    os.environ["VSE_DATA"] = str(data)
    return load_config(ROOT / "pipelines" / "configs" / "flickr8k.yaml", overrides)


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
    """Images a second of the whole stage, and after the actors have started; peak memory of an actor."""
    watch = Stopwatch()
    with PeakMemory() as memory:
        start = time.perf_counter()
        extract.run(config, watch)  # type: ignore[arg-type]
        seconds = time.perf_counter() - start
    (first_time, first), (last_time, last) = watch.marks[0], watch.marks[-1]
    return {
        "images_per_second": last / seconds,
        "images_per_second_once_started": (last - first) / (last_time - first_time),
        "actor_peak_megabytes": memory.megabytes,
    }


def compare(data: Path, folder: Path, images: int, repetitions: int, cores: int) -> dict[str, Any]:
    """Stage and bare loops in turns; the ratio is that of each turn, so that a slow minute does not decide it."""
    turns = []
    for _ in range(repetitions):
        config = photographs(data, images, 125, folder, cores)
        bare = max(time_bare_loop(config, 1, cores), time_bare_loop(config, cores, 1))
        stage = time_stage(config)
        turns.append(
            {
                "bare_loop_images_per_second": bare,
                **stage,
                "ratio": stage["images_per_second"] / bare,
                "ratio_once_started": stage["images_per_second_once_started"] / bare,
            }
        )
    return {
        "images": images,
        "turns": turns,
        "median": {name: statistics.median(turn[name] for turn in turns) for name in turns[0]},
    }


def main() -> None:
    """Measure and write the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=Path(os.environ.get("VSE_DATA") or ROOT / "../shared/data"))
    arguments.add_argument("--images", type=int, default=1000, help="photographs in a comparison")
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--all", type=int, default=7000, help="photographs in the run whose memory is compared")
    arguments.add_argument("--output", type=Path, default=RESULTS)
    options = arguments.parse_args()
    data, cores = options.data.resolve(), cluster.local_cpus()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster.connect(photographs(data, 1, 1, folder, cores))
        result: dict[str, Any] = {
            "load_average_before": os.getloadavg(),
            "comparison": compare(data, folder, options.images, options.repetitions, cores),
            "memory": {
                str(images): time_stage(photographs(data, images, 500, folder, cores))
                for images in (options.images, options.all)
            },
        }
        cluster.disconnect()
    result |= {
        "cores": cores,
        "load_average_after": os.getloadavg(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("ray", "torch", "transformers", "pillow")},
    }
    options.output.parent.mkdir(exist_ok=True)
    write_json_atomic(options.output, result)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
