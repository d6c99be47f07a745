"""Four days of scheduled retraining on Flickr8k: 4,000 photographs, 2,000 more, none, and a poisoned batch.

Each day is a start of pipelines/retrain.py in a process of its own. The poisoned batch: training photographs come
again under other names, each with the captions of another one. The reference is the second day's data from
nothing: an empty work folder, and training that begins with random weights.

Run: python tests/benchmarks/retraining_days.py --epochs 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reader import RESULTS, machine

from pipelines.config import PipelineConfig, load_config
from preprocessing.storage.atomic import write_json_atomic

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "pipelines" / "config" / "data"


class ArrivingPhotographs:
    """Flickr8k's files as they grow from day to day.

    Args:
        source: folder of Flickr8k as published.
        folder: where the lists are written, and links to the photographs.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self._source, self._folder = source, folder
        (folder / "images").mkdir(parents=True)
        self.waiting = (source / "Flickr_8k.trainImages.txt").read_text().split()
        self._captions: dict[str, list[str]] = {}
        for line in (source / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
            caption_id, text = line.split("\t")
            self._captions.setdefault(caption_id.partition("#")[0], []).append(text)
        self._arrived: list[str] = []
        evaluation = (source / "Flickr_8k.devImages.txt").read_text().split()
        (folder / "train.txt").touch()
        for name in evaluation:
            self._add("dev", name, name, self._captions[name])

    def settings(self) -> list[str]:
        """Overrides of the configuration that name these files."""
        splits = f"{{train: {self._folder}/train.txt, dev: {self._folder}/dev.txt}}"
        paths = {"images": "images", "tokens": "tokens.txt"}
        return [
            *(f"dataset.{key}={self._folder / name}" for key, name in paths.items()),
            f"dataset.splits={splits}",
        ]

    def arrive(self, count: int) -> None:
        """Add photographs to the data set."""
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        for name in batch:
            self._add("train", name, name, self._captions[name])
        self._arrived += batch

    def poison(self, count: int) -> None:
        """Add photographs with shuffled captions."""
        batch = random.Random(0).sample(self._arrived, count)
        others = batch[1:] + batch[:1]
        for name, other in zip(batch, others, strict=True):
            self._add("train", f"again-{name}", name, self._captions[other])

    def _add(self, split: str, name: str, original: str, captions: Sequence[str]) -> None:
        shutil.copyfile(self._source / "images" / original, self._folder / "images" / name)
        with (self._folder / f"{split}.txt").open("a") as names:
            names.write(f"{name}\n")
        with (self._folder / "tokens.txt").open("a", encoding="utf-8") as tokens:
            tokens.writelines(f"{name}#{number}\t{text}\n" for number, text in enumerate(captions))


def start(path: Path, settings: Sequence[str]) -> dict[str, Any]:
    """One start of the schedule; returns what came of it, and where the time went."""
    config = load_config(path, settings)
    command = [sys.executable, str(ROOT / "pipelines" / "retrain.py"), "--config", str(path)]
    began = time.perf_counter()
    done = subprocess.run([*command, *(f"--set={item}" for item in settings)], check=False)
    seconds = time.perf_counter() - began
    status = json.loads((config.work_dir / "retrain" / config.registered_model / "status.json").read_text())
    result = {"exit_status": done.returncode, "seconds": round(seconds, 1), "outcome": status["outcome"]}
    if "record" not in status:
        return result | {key: status[key] for key in ("reason",) if key in status}
    record = status["record"]
    kept = {key: record[key] for key in ("start", "data", "decision")}
    rsum = {key: round(record["metrics"][key], 2) for key in ("rsum", "rsum_low", "rsum_high")}
    return result | {"stage_seconds": stage_seconds(config, record["run"].rpartition("/")[2]), **rsum, **kept}


def stage_seconds(config: PipelineConfig, run: str) -> dict[str, float]:
    """Return the seconds of each stage of a retraining run."""
    from mlflow import MlflowClient

    client = MlflowClient(config.tracking_uri)
    experiments = [client.get_run(run).info.experiment_id]
    below = [run]
    seconds = {}
    for _ in range(2):  # the pipeline's run, and below it those of its stages
        found = [
            child
            for parent in below
            for child in client.search_runs(experiments, f"tags.`mlflow.parentRunId` = '{parent}'")
        ]
        below = [child.info.run_id for child in found]
        for child in found:
            if "vse.stage" in child.data.tags:
                took = (child.info.end_time - child.info.start_time) / 1000
                seconds[child.data.tags["vse.stage"]] = round(took, 1)
    return seconds


def simulate(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All days, and the reference after the second."""
    data = Path(os.environ.get("VSE_DATA") or ROOT.parent / "shared" / "data").expanduser().resolve() / "flickr8k"
    photographs = ArrivingPhotographs(data, folder / "data")
    common = [*photographs.settings(), f"training.epochs={arguments.epochs}", *arguments.set]

    def on(work_dir: str, *settings: str) -> dict[str, Any]:
        own = [*common, f"work_dir={folder / work_dir}", *settings]
        result = start(CONFIGS / f"{arguments.config}.yaml", own)
        print(json.dumps(result, indent=1), flush=True)
        return result

    days = {}
    photographs.arrive(arguments.first)
    days["first"] = on("work")
    photographs.arrive(arguments.more)
    days["more"] = on("work")
    reference = None if arguments.without_reference else on("reference", "retrain.start=scratch")
    days["none"] = on("work")
    photographs.poison(arguments.poisoned)
    days["poisoned"] = on("work")
    return {"days": days, "reference_second_day_from_nothing": reference}


def main() -> None:
    """Simulate and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "retraining_days.json", help="JSON file for the result"
    )
    parser.add_argument("--config", default="flickr8k", help="configuration of Flickr8k")
    parser.add_argument("--epochs", type=int, default=7, help="of each training")
    parser.add_argument("--first", type=int, default=4000, help="photographs of the first day")
    parser.add_argument("--more", type=int, default=2000, help="photographs of the second day")
    parser.add_argument("--poisoned", type=int, default=2000, help="photographs of the poisoned batch")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override of the configuration")
    parser.add_argument("--without-reference", action="store_true", help="leave out the reference")
    parser.add_argument("--folder", type=Path, help="where all is written, and stays (default: a temporary folder)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    result = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), **simulate(arguments, folder)}
    if arguments.folder is None:
        shutil.rmtree(folder)
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
