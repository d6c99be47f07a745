"""Speed-up by a second worker on the same cores, and the cost of Ray Train against the same loop started by hand.

One model on one split, with the same global batch: by one process, and by two, each started by hand and by the training
stage on a Ray of its own, all with the settings of memory that the stage gives its workers. A step's time is the median
over the epochs after the first; a run's time is from the command to the end, with the start of Ray and of the
processes.

It starts Ray on this machine, so no other cluster should run here.

Run: python tests/benchmarks/scaling.py --folder FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after this folder, whose neighbours are imported by their own names

from reader import RESULTS, machine  # noqa: E402

from pipelines.config import load_config  # noqa: E402
from pipelines.runtime.cluster import KEEP_MEMORY  # noqa: E402
from pipelines.stages.runner import plan_stages  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.pipelines.training.by_hand import Quiet, train_by_hand  # noqa: E402

SCRIPT = "from pipelines.stages.runner import main; main('extract', 'train')"
EPOCHS = 3
SETTINGS = [
    "dataset.images={train: 320, dev: 100}",
    f"training.epochs={EPOCHS}",
    "training.batch_size=128",
    "training.log_steps=1",
    # At the end of an epoch alone.
    "training.checkpoint_steps=100000",
]
WAYS = {
    "1 process of 1 thread": (1, 1),
    "1 process of 2 threads": (1, 2),
    "2 processes of 1 thread": (2, 1),
}


class Timed(Quiet):
    """An observer that writes down how long the steps took.

    Args:
        path: a line of JSON for each step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append the step's time, if it is told."""
        if "train/step_seconds" in metrics:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(json.dumps([step, metrics["train/step_seconds"]]) + "\n")


def by_ray(settings: list[str], work_dir: Path) -> tuple[float, list[tuple[int, float]]]:
    """Seconds of the training stage as a command, and of its steps."""
    from mlflow import MlflowClient

    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", SCRIPT, *(f"--set={setting}" for setting in settings)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)},
        capture_output=True,
    )
    seconds = time.perf_counter() - began
    client = MlflowClient(f"sqlite:///{work_dir}/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    history = client.get_metric_history(runs[0].info.run_id, "train/step_seconds")
    return seconds, [(metric.step, metric.value) for metric in history]


def by_hand(settings: list[str], work_dir: Path, workers: int, threads: int) -> tuple[float, list[tuple[int, float]]]:
    """Seconds of the same by processes that are started by hand, and of its steps."""
    times = work_dir / "times.jsonl"
    trained = plan_stages(load_config(None, settings), last="train")["train"].directory
    # As torchrun sets it and Ray, for the threads that read ahead.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    began = time.perf_counter()
    train_by_hand(settings, trained, work_dir / "by_hand", workers, threads, Timed(times))
    seconds = time.perf_counter() - began
    del os.environ["OMP_NUM_THREADS"]
    return seconds, [tuple(json.loads(line)) for line in times.read_text().splitlines()]


def median_step(steps: list[tuple[int, float]]) -> float:
    """The median time of a step after the first epoch."""
    last = max(step for step, _ in steps)
    return statistics.median(seconds for step, seconds in steps if step > last // EPOCHS)


def measure(folder: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Time all ways in turn, `rounds` times; the features are extracted once."""
    extracted = folder / "extract"
    found: dict[str, dict[str, list[float]]] = {
        name: {f"{kind}, {what}": [] for kind in ("by hand", "on Ray") for what in ("step", "run")} for name in WAYS
    }
    for number in range(rounds):
        for name, (workers, threads) in WAYS.items():
            work_dir = folder / f"{workers}x{threads}-{number}"
            shutil.rmtree(work_dir, ignore_errors=True)
            work_dir.mkdir(parents=True)
            settings = [f"work_dir={work_dir}", *SETTINGS]
            settings += [f"training.workers={workers}", f"training.cpus_per_worker={threads}"]
            if extracted.exists():
                shutil.copytree(extracted, work_dir / "extract")
            else:
                by_ray(settings, work_dir)
                shutil.copytree(work_dir / "extract", extracted)
                shutil.rmtree(work_dir / "train")
                (work_dir / "mlflow.db").unlink()
            for kind, (run, steps) in {
                "on Ray": by_ray(settings, work_dir),
                "by hand": by_hand(settings, work_dir, workers, threads),
            }.items():
                found[name][f"{kind}, step"].append(median_step(steps))
                found[name][f"{kind}, run"].append(run)
                print(name, kind, round(run, 1), round(median_step(steps), 4), flush=True)
    return found


def summary(times: Mapping[str, list[float]], single: Mapping[str, list[float]]) -> dict[str, Any]:
    """Medians over the rounds, and the ratios."""
    medians = {what: statistics.median(seconds) for what, seconds in times.items()}
    one = statistics.median(single["by hand, step"])
    return {
        "seconds_per_step": {kind: round(medians[f"{kind}, step"], 4) for kind in ("by hand", "on Ray")},
        "seconds_per_run": {kind: round(medians[f"{kind}, run"], 1) for kind in ("by hand", "on Ray")},
        "step_on_ray_over_by_hand": round(medians["on Ray, step"] / medians["by hand, step"], 3),
        "speed_up_over_one_thread": round(one / medians["by hand, step"], 3),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="for work folders; an extraction in it is used")
    parser.add_argument("--output", type=Path, default=RESULTS / "scaling.json", help="JSON file for the result")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ.update(KEEP_MEMORY)
    times = measure(arguments.folder.absolute(), arguments.rounds)
    single = times["1 process of 1 thread"]
    result = {
        "command": shlex.join(["python", "tests/benchmarks/scaling.py", "--folder", "FOLDER"]),
        "machine": machine(),
        "rounds": arguments.rounds,
        "settings": SETTINGS,
        "ways": {name: summary(way, single) for name, way in times.items()},
    }
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
