"""Seconds that a checkpoint stops training, and those that it would if training wrote it itself.

VSE-infinity over regions, with a BiGRU and with BERT, after a step of AdamW, in one process.

Run: python tests/benchmarks/checkpoints.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from presets import PRESETS, RATE, Ours, Sizes
from reader import RESULTS, origin

from pipelines.training.checkpoints import Checkpoints
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import NO_MIRROR
from vse_core.training.optim import build_optimizer
from vse_core.training.state import Progress

ROUNDS = 7
VOCABULARIES = {"bigru": 8_481, "bert": 30_522}


def measure(image: str, text: str, folder: Path) -> dict[str, Any]:
    """Write checkpoints of a system one after another; the first, for which memory is allocated, apart."""
    model = Ours(replace(Sizes(), vocabulary=VOCABULARIES[text]), image, text, "float32", torch.device("cpu")).model
    optimizer = build_optimizer(model, RATE, 1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    checkpoints = Checkpoints(folder, lambda *_: None, NO_MIRROR, minutes=0)
    stopped, written = [], []
    for step in range(1, ROUNDS + 2):
        start = time.perf_counter()
        checkpoints.save(step, model, optimizer, Progress(step=step))
        stopped.append(time.perf_counter() - start)
        checkpoints.wait()
        written.append(time.perf_counter() - start)
    checkpoints.close()
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": sum(path.stat().st_size for path in (folder / "checkpoints" / f"step-{step:08d}").iterdir()),
        "stopped_first": round(stopped[0], 3),
        "stopped": round(statistics.median(stopped[1:]), 3),
        "written": round(statistics.median(written[1:]), 3),
    }


def main() -> None:
    """Measure both systems and write the result."""
    torch.set_num_threads(1)
    result: dict[str, Any] = {**origin(), "systems": {}}
    for name in ("regions and BiGRU", "regions and BERT"):
        with tempfile.TemporaryDirectory(prefix="vse-checkpoints-") as folder:
            result["systems"][name] = measure(*PRESETS[name], Path(folder))
        print(name, result["systems"][name], flush=True)
    write_json_atomic(RESULTS / "checkpoints.json", result)


if __name__ == "__main__":
    main()
