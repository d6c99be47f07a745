"""Losses of a few training steps at a fixed seed, compared with recorded ones: a change of numerics shows here.

A deliberate change records them again, and its commit says why:

    python -m tests.vse_core.training.test_recorded
"""

import json
from pathlib import Path

import pytest
import torch

from tests.vse_core.training.tiny_levels import levels_batch, tiny_levels
from tests.vse_core.training.tiny_unified import adversarial_batch, tiny_adversarial, tiny_unified, unified_batch
from tests.vse_core.training.tiny_views import LOSSES, TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

RECORD = Path(__file__).with_name("recorded_losses.json")
STEPS, SIZE = 6, 24

# Model, batches and options of the loss.
SYSTEMS = {name: (lambda: TinyViews(views=2), random_batch, options) for name, options in LOSSES.items()}
SYSTEMS |= {
    "unified": (tiny_unified, unified_batch, {"name": "unified"}),
    "vse_c": (tiny_adversarial, adversarial_batch, {"name": "vse_c"}),
    "hierarchical": (tiny_levels, levels_batch, {"name": "hierarchical"}),
}


def losses_of(name: str) -> list[float]:
    make_model, make_batch, options = SYSTEMS[name]
    model, loss = make_model(), build_loss(**options)
    optimizer = build_optimizer(model, 5e-3, 0.01)
    found = []
    for step in range(STEPS):
        inputs, ids = make_batch(SIZE, seed=step)
        found.append(
            training_step(model, loss, optimizer, [LocalBatch(inputs, ids, [SIZE])], gradient_clip=2.0).loss.item()
        )
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_losses_are_the_recorded_ones(name: str):
    assert losses_of(name) == pytest.approx(json.loads(RECORD.read_text())[name], rel=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [f'"{name}": {[float(f"{loss:.7g}") for loss in losses_of(name)]}' for name in SYSTEMS]
    RECORD.write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")
