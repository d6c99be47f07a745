"""Thirty nights of a schedule with `retrain.keep`: outcome, time and requests to S3 of each, and what is left.

Run: python tests/benchmarks/nights.py        (half an hour; with --plot it draws what was measured)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import boto3
import ray
import yaml
from matplotlib.figure import Figure
from reader import origin

from pipelines.config import load_config
from pipelines.retention.prune import prune
from pipelines.retraining import retrain as retraining
from pipelines.retraining.journal import STATUS
from pipelines.stages.extract import plan as extract
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.s3 import S3Storage
from tests.integration import servers_of_s3
from tests.integration.faults import FaultyProxy, faulty_proxy
from tests.integration.seams.arriving_scenes import ArrivingScenes
from vse_core.evaluation.plots import OKABE_ITO

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results" / "nights.json"
PLOT = ROOT / "docs" / "images" / "nights.png"
IMAGES, EVALUATION, KEEP = 20, 40, 3
STORAGE = "s3://nights/outputs"
# Twelve with new data, ten with none (after a kill they finish what it left), three bad, three kills, two at once.
NIGHTS = (
    *("new", "none", "new", "killed", "none", "bad", "none", "new", "two at once", "new"),
    *("none", "new", "killed", "none", "new", "bad", "none", "new", "new", "none"),
    *("two at once", "new", "none", "killed", "none", "new", "bad", "new", "none", "new"),
)
SETTINGS: dict[str, Any] = {
    "name": "shop",
    "features": {"extractor": "grid", "weights": "tiny_resnet", "random_seed": 0, "batch_size": 20, "shard_size": 20},
    "model": {"embed_dim": 64, "text": {"word_dim": 32}},
    "training": {"epochs": 1, "batch_size": 32, "warmup": "10 steps", "learning_rate": 0.002, "cpus_per_worker": 1},
    "retrain": {"keep": KEEP},
    "loss": {"mask_same_image": True, "all_negatives": "10 epochs"},
}


class Shop:
    """A data set that grows, the work folder of its schedule, its storage, and what was pruned here so far."""

    def __init__(self, folder: Path, s3: FaultyProxy) -> None:
        self.s3, self.storage = s3, S3Storage(STORAGE)
        self.scenes = ArrivingScenes(folder / "data", IMAGES * len(NIGHTS), EVALUATION)
        self.table, self.work, self.file = folder / "data" / "train.csv", folder / "work", folder / "nights.yaml"
        settings = {**SETTINGS, **yaml.safe_load(self.scenes.settings.replace("=", ": ", 1))}
        self.file.write_text(yaml.safe_dump({**settings, "work_dir": str(self.work), "storage": {"address": STORAGE}}))
        self.removed: Counter[str] = Counter()
        retraining.prune = self._prune

    def nights(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each night."""
        for number, event in enumerate(NIGHTS, start=1):
            table = self.table.read_bytes()
            if event != "none":
                self.scenes.arrive(IMAGES, poisoned=event == "bad")
            start = time.monotonic()
            self.s3.clear()
            outcome = self._killed() if event == "killed" else self._started(is_double=event == "two at once")
            row = {"night": number, "event": event, "outcome": outcome, "seconds": round(time.monotonic() - start, 1)}
            row["requests"] = self.s3.requests.total()
            if outcome == "failed":
                self.table.write_bytes(table)  # on the next day somebody takes the bad batch out
            stored = sum(entry.bytes for entry in self.storage.list())
            yield {
                **row,
                "stored": stored,
                **self._disk(),
                **{f"removed {key}": count for key, count in self.removed.items()},
            }

    def _started(self, *, is_double: bool) -> str:
        """Start as the schedule does, twice at once if it `is_double`; return the outcome."""
        other = self._command() if is_double else None
        extract._summary.cache_clear()  # as in a process of its own
        try:
            retraining.retrain(load_config(self.file))
        except Exception as error:  # noqa: BLE001 (a bad night is a night)
            print(f"{type(error).__name__}: {error}", flush=True)
        outcome: str = json.loads((self.work / "retrain" / "shop" / STATUS).read_text())["outcome"]
        return outcome if other is None else f"{outcome}; the other ended with {other.wait()}"

    def _killed(self) -> str:
        """Start, and kill the process in its training."""
        before = set(self.work.glob("train/*/prepared.json"))
        process = self._command()
        while process.poll() is None and before.issuperset(self.work.glob("train/*/prepared.json")):
            time.sleep(0.1)
        process.kill()
        return "killed" if process.wait() == -signal.SIGKILL else f"ended with {process.returncode}"

    def _command(self) -> subprocess.Popen[bytes]:
        address = f"ray.address={ray.get_runtime_context().gcs_address}"
        script = str(ROOT / "pipelines" / "retrain.py")
        return subprocess.Popen([sys.executable, script, "--config", str(self.file), "--set", address])

    def _prune(self, *arguments: Any, **options: Any) -> str:
        before = Counter(self._disk())
        told = prune(*arguments, **options)
        self.removed += before - Counter(self._disk())
        return told

    def _disk(self) -> dict[str, int]:
        """Return the bytes of the work folder, each file's once however many links it has, its files, and MLflow's."""
        paths = [Path(folder) / name for folder, _, names in os.walk(self.work) for name in names]
        sizes = {status.st_ino: status.st_size for status in (path.lstat() for path in paths)}
        with contextlib.closing(sqlite3.connect(self.work / "mlflow.db")) as database:
            pages, free, size = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return {"bytes": sum(sizes.values()), "files": len(paths), "database": (pages - free) * size}


@contextlib.contextmanager
def stored(folder: Path) -> Iterator[FaultyProxy]:
    """Run an S3 server with a bucket, and a proxy in front that counts requests; this process and children use it."""
    with servers_of_s3.running("moto", folder) as server, faulty_proxy(server.port) as proxy:
        keys = {"AWS_ACCESS_KEY_ID": "nights", "AWS_SECRET_ACCESS_KEY": "nights", "AWS_REGION": servers_of_s3.REGION}
        os.environ |= {**keys, "AWS_ENDPOINT_URL": proxy.endpoint}
        boto3.client("s3", region_name=servers_of_s3.REGION).create_bucket(Bucket="nights")
        yield proxy


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Plot disk, files and database after each night, and with what was removed until then."""
    figure = Figure(figsize=(11.0, 3.4), layout="constrained")
    panels = {"bytes": ("disk (MB)", 1e6), "files": ("files", 1), "database": ("database in use (MB)", 1e6)}
    for axes, (key, (title, unit)) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        kept = [row[key] / unit for row in rows]
        without = [(row[key] + row.get(f"removed {key}", 0)) / unit for row in rows]
        nights = range(1, len(rows) + 1)
        axes.plot(nights, without, "--", label="with what was removed", color=OKABE_ITO["vermillion"])
        axes.plot(nights, kept, "o-", markersize=3, label=f"retrain.keep: {KEEP}", color=OKABE_ITO["blue"])
        axes.set(xlabel="night", title=title, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left", frameon=False)
    return figure


def main() -> None:
    """Run the nights, or plot what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", action="store_true")
    if not parser.parse_args().plot:
        rows = []
        with tempfile.TemporaryDirectory(prefix="vse-nights-") as folder, stored(Path(folder)) as s3:
            ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=100_000_000)
            for row in Shop(Path(folder), s3).nights():
                print(json.dumps(row), flush=True)
                rows.append(row)
                write_json_atomic(RESULTS, {**origin(), "keep": KEEP, "nights": rows})
        ray.shutdown()
    draw(json.loads(RESULTS.read_text())["nights"]).savefig(PLOT, dpi=90)


if __name__ == "__main__":
    main()
