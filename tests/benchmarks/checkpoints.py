"""How long training waits for a checkpoint: for a copy in memory, against writing it itself.

Run: python tests/benchmarks/checkpoints.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, origin

from pipelines.training.checkpoints import Checkpoints
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import NO_MIRROR
from vse_core.models import Model, build_model
from vse_core.training.state import Progress

# The word vectors of a BiGRU make up the difference to the size that is wanted.
WORDS = {"14 million": 11_000, "124 million": 378_000}
TURNS = 5


def a_model(words: int) -> tuple[Model, torch.optim.Optimizer]:
    """A model of VSE-infinity with its optimiser's state."""
    text = {"pooling": {"name": "gpo"}, "word_dim": 300}
    model = build_model(1280, words, 1024, {"pooling": {"name": "gpo"}}, text)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return model, optimizer


def timed(words: int) -> dict[str, Any]:
    """Milliseconds that `save` takes, and until the checkpoint is written, median after a first one."""
    model, optimizer = a_model(words)
    waits, totals = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), lambda _path, _progress: None, NO_MIRROR, minutes=0)
        for step in range(TURNS + 1):
            begun = time.perf_counter()
            checkpoints.save(step, model, optimizer, Progress(step=step))
            waits.append(time.perf_counter() - begun)
            checkpoints.wait()
            totals.append(time.perf_counter() - begun)
        checkpoints.close()
    milliseconds = [round(1000 * statistics.median(each[1:]), 1) for each in (waits, totals)]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "waits_ms": milliseconds[0], "writes_ms": milliseconds[1]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_json_atomic(RESULTS / "checkpoints.json", {**origin(), **{name: timed(n) for name, n in WORDS.items()}})
