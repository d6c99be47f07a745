"""Losses of a few training steps at a fixed seed, compared with recorded ones: a change of numerics shows here.

A deliberate change records them anew, and its commit says why:

    python -m tests.vse_core.training.test_recorded
"""

import json
from pathlib import Path

import pytest
import torch

from tests.vse_core.training.tiny_views import LOSSES, TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.training.optim import build_optimizer
from vse_core.training.step import training_step

RECORD = Path(__file__).with_name("recorded_losses.json")
STEPS, SIZE = 6, 24


def losses_of(options: dict[str, str]) -> list[float]:
    model, loss = TinyViews(views=2), build_loss(**options)
    optimizer = build_optimizer(model, 5e-3, 0.01)
    found = []
    for step in range(STEPS):
        inputs, ids = random_batch(SIZE, seed=step)
        found.append(training_step(model, loss, optimizer, inputs, ids, [SIZE], gradient_clip=2.0).loss.item())
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_the_recorded_ones(name: str):
    assert losses_of(LOSSES[name]) == pytest.approx(json.loads(RECORD.read_text())[name], rel=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [f'"{name}": {[float(f"{loss:.7g}") for loss in losses_of(options)]}' for name, options in LOSSES.items()]
    RECORD.write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")
