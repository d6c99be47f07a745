"""Gradient norms of the terms of UniVSE's loss, by all negatives and by the hardest, at the start and after training.

The record also has the norms of the loss that added the hinges of all negatives up, at the same weights.

Run: python tests/benchmarks/univse_balance.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import torch
from reader import RESULTS, machine
from univse_study import SHORT, UNIVSE, configured, make_shards, splits

from pipelines.training.prepare import prepare
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.storage.atomic import write_json_atomic
from tests.pipelines.training.by_hand import Quiet, quiet_trainer
from vse_core.losses.hinge import Negatives
from vse_core.losses.unified import UnifiedLoss

TERMS: dict[str, dict[str, float]] = {
    "sent": {},
    "comp": {"component_weight": 0.5},
    "obj": {"object_weight": 0.5},
    "attr": {"attribute_weight": 0.5},
    "rel": {"relation_weight": 1.0},
}
NOTHING = dict.fromkeys(("component_weight", "object_weight", "attribute_weight", "relation_weight"), 0.0)


def gradient_norms(trainer: Trainer) -> dict[str, dict[str, float]]:
    """Return the norm of every weighted term's gradient over all parameters, on the first batch of the first epoch."""
    batch = trainer.loader.batch(0, 0)
    inputs = (batch.images, batch.lengths_or_mask, batch.tokens_BL, batch.token_lengths_B)
    inputs += trainer.kind.step_inputs(trainer.settings.loss, batch, 0, trainer.steps_per_epoch)
    output = trainer.model(*inputs)
    parameters = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]

    def gradient(negatives: Negatives, weights: dict[str, float]) -> torch.Tensor:
        loss = UnifiedLoss(negatives=negatives, mask_same_image=True, **NOTHING | weights)
        total = loss(output, batch.image_indices_B).total
        gradients = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
        return torch.cat([each.flatten() for each in gradients if each is not None])

    norms: dict[str, dict[str, float]] = {}
    for negatives in get_args(Negatives):
        sentences = gradient(negatives, {})
        found = {name: gradient(negatives, weights) - sentences for name, weights in TERMS.items() if weights}
        norms[negatives] = {name: round(float(each.norm()), 4) for name, each in ({"sent": sentences} | found).items()}
    return norms


def measure(directory: Path, seed: int) -> dict[str, Any]:
    """Train UniVSE, and return the norms before and after, with the recalls."""
    config = configured(UNIVSE, (), seed)
    out = directory / "balance"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    train, dev = splits(config, directory)
    prepare(config.training_settings, train, dev, out)
    trainer = quiet_trainer(config, train, dev, load_caption_encoder(out), out, Quiet())
    start = gradient_norms(trainer)
    history = trainer.run()
    trained = gradient_norms(trainer)
    return {"start": start, "trained": trained, "rsum_by_epoch": [round(epoch["rsum"], 2) for epoch in history]}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "univse_balance.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, default=Path("runs/univse_study"), help="of shards and runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    make_shards(configured(UNIVSE, (), 0), arguments.directory)
    result: dict[str, Any] = json.loads(arguments.output.read_text(encoding="utf-8"))
    result |= {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "settings": SHORT}
    write_json_atomic(arguments.output, result | {"mean of violations": measure(arguments.directory, arguments.seed)})


if __name__ == "__main__":
    main()
