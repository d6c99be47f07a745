"""Gradient norms of the terms of UniVSE's loss, while all negatives count and after, and what the run reaches.

Run: python tests/benchmarks/univse_balance.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine
from univse_study import SHORT, UNIVSE, configured, make_shards, splits

from pipelines.training.prepare import prepare
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.storage.atomic import write_json_atomic
from tests.pipelines.training.by_hand import Quiet
from vse_core.losses.unified import UnifiedLoss

TERMS = {
    "sent": {},
    "comp": {"component_weight": 0.5},
    "obj": {"object_weight": 0.5},
    "attr": {"attribute_weight": 0.5},
    "rel": {"relation_weight": 1.0},
}
EPOCHS = (0, 4, 8, 12)
"""Epochs before which the norms are taken: all negatives count for 525 of 744 steps, 62 an epoch."""


def gradient_norms(trainer: Trainer, negatives: str) -> dict[str, float]:
    """Return the norm of every weighted term's gradient over all parameters, on the first batch of the first epoch."""
    batch = trainer.loader.batch(0, 0)
    inputs = (batch.images, batch.lengths_or_mask, batch.tokens_BL, batch.token_lengths_B)
    inputs += trainer.kind.step_inputs(trainer.config.loss, batch, 0, trainer.steps_per_epoch)
    output = trainer.model(*inputs)
    parameters = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    none = dict.fromkeys(("component_weight", "object_weight", "attribute_weight", "relation_weight"), 0.0)

    def gradient(weights: dict[str, float]) -> torch.Tensor:
        loss = UnifiedLoss(negatives=negatives, mask_same_image=True, **none | weights)
        total = loss(output, batch.image_indices_B).total
        gradients = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
        return torch.cat([each.flatten() for each in gradients if each is not None])

    sentences = gradient({})
    norms = {
        name: (gradient(weights) - sentences if weights else sentences).norm().item() for name, weights in TERMS.items()
    }
    return {name: round(norm, 4) for name, norm in norms.items()}


def measured(directory: Path, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Train UniVSE, and yield the norms at the start of some epochs, with the recalls in the end."""
    config = configured(UNIVSE, (), seed)
    out = directory / "balance"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    train, dev = splits(config, directory)
    prepare(config, train, dev, out)
    history: list[dict[str, float]] = []
    trainer = Trainer(
        config, train, dev, load_caption_encoder(out), out, torch.device("cpu"), Quiet(), on_epoch=history.append
    )
    norms: dict[str, Any] = {}

    def note(metrics: dict[str, float] | None = None) -> None:
        if metrics is not None:
            history.append(metrics)
        if len(history) in EPOCHS:
            for negatives in ("all", "hardest"):
                norms[f"epoch {len(history)}, {negatives}"] = gradient_norms(trainer, negatives)
            print(json.dumps(norms, indent=1), flush=True)

    trainer.on_epoch = note
    note()
    trainer.run()
    yield "norms", norms
    yield "rsum_by_epoch", [round(epoch["rsum"], 2) for epoch in history]


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "univse_balance.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, default=Path("runs/univse_study"), help="of shards and runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    make_shards(arguments.directory)
    result = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "settings": SHORT}
    write_json_atomic(arguments.output, result | dict(measured(arguments.directory, arguments.seed)))


if __name__ == "__main__":
    main()
