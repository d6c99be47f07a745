"""SIGKILLs at random moments of a small pipeline, and what its output then lacks compared with an undisturbed run.

The same command is given again after every kill, until a start comes through; then shards, losses, weights, the
optimiser's state, gallery, index and metrics are compared bit by bit with those of the undisturbed run, and the next
run begins in an empty work folder. Half of the kills end the driver alone, half every process that it has started.

Run: python tests/benchmarks/sigkills.py --folder FOLDER --kills 50
Kills that the results of the same folder list already are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.benchmarks.reader import RESULTS, machine  # noqa: E402
from tests.benchmarks.training_faults import descendants  # noqa: E402

SETTINGS = (
    "dataset.images={train: 60, dev: 20}",
    "features.shard_size=20",
    "model={embed_dim: 32, text: {word_dim: 16}}",
    "training={epochs: 30, batch_size: 32, log_steps: 1, checkpoint_steps: 10}",
)
# A work folder's contents that the same inputs have to give; manifests and reports name times and runs of MLflow.
COMPARED = (
    "extract/*/*/shard-*",
    "train/*/losses.jsonl",
    "train/*/best-*/*",
    "train/*/checkpoints/step-*/*",
    "evaluate/*/manifest.json",
    "evaluate/*/gallery/*",
    "index/*/index/*",
    "register/*/model/*",
    "register/*/gallery/*",
)
# Ray ends its processes when the driver is gone; a start that follows at once would meet them.
ENDING_SECONDS = 60.0


def start(work_dir: Path) -> subprocess.Popen[bytes]:
    """Start the pipeline in a work folder, with a Ray of its own; its output is appended to a file next to it."""
    settings = [f"--set={setting}" for setting in (f"work_dir={work_dir}", *SETTINGS)]
    command = [sys.executable, str(ROOT / "pipelines" / "full.py"), *settings]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with work_dir.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**environment, "PYTHONPATH": str(ROOT)}
        )


def contents(work_dir: Path) -> dict[str, str]:
    """Return the sha256 of what is compared, by its path; folders of the register stage are named by the database."""
    files = {path for pattern in COMPARED for path in work_dir.glob(pattern)}
    names = {path: path.relative_to(work_dir).as_posix() for path in files}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for path, name in names.items()}
    return {
        name if not name.startswith("register/") else f"register/{name.split('/', 2)[2]}": digest
        for name, digest in sorted(digests.items())
    }


def reached(work_dir: Path) -> str:
    """Return the stage that a killed run was in, with the losses of its training."""
    done = [
        stage
        for stage in ("extract/train", "train", "evaluate", "index", "register")
        if any(work_dir.glob(f"{stage}/*/manifest.json"))
    ]
    losses = sum(len(path.read_bytes().splitlines()) for path in work_dir.glob("train/*/losses.jsonl"))
    return f"after {done[-1] if done else 'nothing'}, {losses} losses"


def kill(process: subprocess.Popen[bytes], alone: bool) -> int:
    """Kill the driver, or all of its processes; return how many were left a minute after it and ended then."""
    with contextlib.ExitStack() as stack:
        started = [opened for pid in descendants(process.pid)[1:] if (opened := _opened(pid, stack)) is not None]
        process.kill()
        process.wait()
        for child in [] if alone else started:
            _end(child)
        until = time.monotonic() + ENDING_SECONDS
        left = [child for child in started if not select.select([child], [], [], max(0, until - time.monotonic()))[0]]
        for child in left:
            _end(child)
        return len(left)


def _end(descriptor: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _opened(pid: int, stack: contextlib.ExitStack) -> int | None:
    """Return a descriptor of a process, which names no other one when its id is given again; None if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        stack.callback(os.close, descriptor)
        return descriptor
    return None


def finish(process: subprocess.Popen[bytes], work_dir: Path) -> dict[str, str]:
    """Wait for the end of a run and return its contents; RuntimeError with its last words where it fails."""
    if process.wait():
        raise RuntimeError(work_dir.with_suffix(".log").read_text(errors="replace")[-3000:])
    return contents(work_dir)


def measure(folder: Path, kills: int, path: Path) -> None:
    """Kill a pipeline so many times, and write the table after every kill and every comparison."""
    table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"kills": [], "compared": []}
    undisturbed = folder / "undisturbed"
    began = time.monotonic()
    expected = finish(start(undisturbed), undisturbed)
    table.setdefault("undisturbed_seconds", round(time.monotonic() - began, 1))
    table |= {"command": "python tests/benchmarks/sigkills.py --folder FOLDER --kills 50", "machine": machine()}
    table["files"] = len(expected)
    chosen = random.Random(len(table["kills"]))
    while len(table["kills"]) < kills:
        work_dir = folder / f"killed-{len(table['compared'])}"
        process, moment = start(work_dir), chosen.uniform(0, table["undisturbed_seconds"])
        alone = chosen.random() < 0.5
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            left = kill(process, alone)
            row = {"second": round(moment, 1), "killed": "driver" if alone else "all", "left": left}
            table["kills"].append({**row, "run": work_dir.name, "reached": reached(work_dir)})
        else:
            _compare(table, expected, finish(process, work_dir), work_dir)
        print(table["kills"][-1:], table["compared"][-1:], flush=True)
        write_json_atomic(path, table)
    work_dir = folder / f"killed-{len(table['compared'])}"
    _compare(table, expected, finish(start(work_dir), work_dir), work_dir)
    write_json_atomic(path, table)


def _compare(table: dict[str, Any], expected: dict[str, str], found: dict[str, str], work_dir: Path) -> None:
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    kills = sum(row["run"] == work_dir.name for row in table["kills"])
    table["compared"].append({"run": work_dir.name, "kills": kills, "different": wrong})
    if not wrong:
        shutil.rmtree(work_dir)


def main() -> None:
    """Run the kills that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="for work folders, of which the undisturbed is kept")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--results", type=Path, default=RESULTS / "sigkills.json")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    measure(arguments.folder.absolute(), arguments.kills, arguments.results)


if __name__ == "__main__":
    main()
