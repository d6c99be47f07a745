"""A training step of UniVSE against one of VSE++ on the same features and captions, taken in turns in the same run.

Captions have 12 words of a Zipf distribution over 8481, and on average 3 objects, 1.5 pairs of an adjective and a noun
and 1.5 triples, with the default numbers of negatives: 16, 8 + 8 and 2 + 4 + 2. Negatives are drawn evenly from 1000
nouns, 37 adjectives and 300 relations.

Run: python tests/benchmarks/unified_step.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import GlobalLoss, build_loss
from vse_core.losses.unified import UnifiedLoss
from vse_core.models import build_model
from vse_core.models.components import Components
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

BATCH, CELLS, WIDTH, WORDS, VOCABULARY = 128, 49, 1280, 12, 8481
NOUNS, ADJECTIVES, RELATIONS = 1000, 37, 300
OBJECTS, PAIRS, TRIPLES = 3 * BATCH, 3 * BATCH // 2, 3 * BATCH // 2
LIMIT = 2.5


class System:
    """One model with its loss and its optimiser, on one batch."""

    def __init__(self, model: nn.Module, loss: GlobalLoss, inputs: list[Any], device: str) -> None:
        self.model, self.loss, self.inputs = model.to(device), loss, inputs
        self.optimizer = build_optimizer(self.model, 1e-4, 0.0)
        self.ids_B = torch.arange(BATCH, device=device)
        self.device = device

    def seconds(self) -> float:
        """Return the time of one training step."""
        began = time.perf_counter()
        training_step(self.model, self.loss, self.optimizer, [LocalBatch(self.inputs, self.ids_B, [BATCH])], 2.0)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began


def zipf(count: int, first: int, kinds: int) -> Tensor:
    """Ids from ``first`` on, each as frequent as the inverse of its rank."""
    return first + torch.multinomial(1 / torch.arange(1.0, kinds + 1), count, replacement=True)


def words(*shape: int, first: int, kinds: int) -> Tensor:
    """Ids from ``first`` on, all as frequent."""
    return torch.randint(first, first + kinds, shape)


def make_components() -> Components:
    """Components of a batch; nouns come first in the vocabulary, then adjectives, then relations."""
    noun, adjective = {"first": 4, "kinds": NOUNS}, {"first": 4 + NOUNS, "kinds": ADJECTIVES}
    relation = {"first": 4 + NOUNS + ADJECTIVES, "kinds": RELATIONS}
    pairs_A2 = torch.stack([zipf(PAIRS, **adjective), zipf(PAIRS, **noun)], dim=1)
    pair_negatives_AN2 = pairs_A2.unsqueeze(1).repeat(1, 16, 1)
    pair_negatives_AN2[:, :8, 0] = words(PAIRS, 8, **adjective)
    pair_negatives_AN2[:, 8:, 1] = words(PAIRS, 8, **noun)
    triples_T3 = torch.stack([zipf(TRIPLES, **kind) for kind in (noun, relation, noun)], dim=1)
    triple_negatives_TN3 = triples_T3.unsqueeze(1).repeat(1, 8, 1)
    triple_negatives_TN3[:, :2, 0] = words(TRIPLES, 2, **noun)
    triple_negatives_TN3[:, 2:6, 1] = words(TRIPLES, 4, **relation)
    triple_negatives_TN3[:, 6:, 2] = words(TRIPLES, 2, **noun)
    return Components(
        objects_O=zipf(OBJECTS, **noun),
        object_owner_O=torch.randint(0, BATCH, (OBJECTS,)),
        object_negatives_ON=words(OBJECTS, 16, **noun),
        pairs_A2=pairs_A2,
        pair_owner_A=torch.randint(0, BATCH, (PAIRS,)),
        pair_negatives_AN2=pair_negatives_AN2,
        triples_TL=triples_T3,
        triple_owner_T=torch.randint(0, BATCH, (TRIPLES,)),
        triple_negatives_TNL=triple_negatives_TN3,
        triple_numbers_T=torch.arange(TRIPLES),
        true_triples_CX=torch.full((BATCH, 10), -1),
    )


def make_systems(dim: int, device: str) -> dict[str, System]:
    """VSE++ with each of its aggregators, and UniVSE, on the same batch."""
    torch.manual_seed(0)
    inputs = [
        torch.rand(BATCH, CELLS, WIDTH).half(),
        torch.full((BATCH,), CELLS),
        zipf(BATCH * WORDS, 4, VOCABULARY - 4).view(BATCH, WORDS),
        torch.full((BATCH,), WORDS),
    ]
    inputs = [tensor.to(device) for tensor in inputs]
    systems = {}
    for pooling in ("mean", "max"):
        image, text = {"pooling": {"name": pooling}, "mlp": False}, {"pooling": {"name": pooling}}
        model = build_model(WIDTH, VOCABULARY, dim, image, text)
        systems[f"vse_pp, {pooling} pooling"] = System(model, build_loss("triplet"), inputs, device)
    unified = build_model(WIDTH, VOCABULARY, dim, {"name": "regions"}, {"name": "components"})
    systems["univse"] = System(unified, UnifiedLoss(), [*inputs, make_components().to(device)], device)
    return systems


def measure(dim: int, rounds: int, device: str) -> dict[str, Any]:
    """Median seconds of a step of each system, and what UniVSE's is in those of VSE++."""
    systems = make_systems(dim, device)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 1):
        for name, system in systems.items():
            seconds = system.seconds()
            if turn:  # the first warms up
                times[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratios = {name: medians["univse"] / seconds for name, seconds in medians.items() if name != "univse"}
    return {
        "seconds_per_step": {name: round(seconds, 4) for name, seconds in medians.items()},
        "univse_in_steps_of": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "below_the_limit": max(ratios.values()) < LIMIT,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "unified_step.json", help="JSON file for the result")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    result |= {"threads": arguments.threads, "device": arguments.device, "features": f"{CELLS}x{WIDTH}"}
    result |= {"batch": BATCH, "limit": LIMIT}
    result["embed_dim"] = {dim: measure(dim, arguments.rounds, arguments.device) for dim in (512, 1024)}
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
