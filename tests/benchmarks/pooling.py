"""Time of GPO against the straightforward way to compute it, and of three views, in one run on one thread.

The straightforward way runs the GRU once per sample over repeated codes of the ranks and sorts along the set's axis.
Times are CPU seconds of the only thread, so that other work on the machine counts little.

Run: python tests/benchmarks/pooling.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine, origin
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.pooling import build_views
from vse_core.pooling.gpo import GeneralizedPooling, rank_codes

BATCH, DIM, REGIONS = 128, 1024, 36
SIZES = (REGIONS, 49, 196, 256)
VIEWS = 3

Pool = Callable[[Tensor, Tensor], Tensor]


class StraightforwardGpo(nn.Module):
    """GPO as one writes it down first, with the weights of one of ours."""

    def __init__(self, ours: GeneralizedPooling) -> None:
        super().__init__()
        self.gru, self.linear, self.temperature = ours.gru, ours.linear, ours.temperature
        self.codes = rank_codes(max(SIZES), ours.position_dim).to(ours.linear.weight)

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        longest = int(lengths_B.max())
        padded_BN1 = (torch.arange(longest) >= lengths_B.unsqueeze(-1)).unsqueeze(-1)
        codes_BNP = self.codes[:longest].repeat(len(lengths_B), 1, 1).masked_fill(padded_BN1, 0.0)
        packed = nn.utils.rnn.pack_padded_sequence(codes_BNP, lengths_B, batch_first=True, enforce_sorted=False)
        hidden_BNH = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
        scores_BN1 = self.linear(hidden_BNH.unflatten(-1, (2, -1)).mean(dim=-2)).masked_fill(padded_BN1, -10000.0)
        weights_BN1 = torch.softmax(scores_BN1 / self.temperature, dim=1)
        ranked_BND = features_BND[:, :longest].masked_fill(padded_BN1, -10000.0).sort(dim=1, descending=True).values
        return (ranked_BND.masked_fill(padded_BN1, 0.0) * weights_BN1).sum(dim=1)


def make_sets(size: int) -> Tensor:
    """Random sets without equal values in a dimension, whose gradients depend on how a sort breaks ties."""
    places = torch.rand(BATCH, size, DIM).argsort(dim=1)
    return (places + torch.rand(BATCH, size, DIM) / 2) * (4 / size) - 2


def training_step(pool: Pool, features_BND: Tensor, lengths_B: Tensor) -> None:
    """Forward and backward, down to the features and the weights."""
    pool(features_BND.requires_grad_(), lengths_B).sum().backward()
    features_BND.grad = None


@torch.no_grad()
def inference(pool: Pool, features_BND: Tensor, lengths_B: Tensor) -> None:
    """Forward alone."""
    pool(features_BND, lengths_B)


def milliseconds(pools: dict[str, Pool], size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU time of each way, for training and inference on full sets.

    Each way runs by itself, as in a training: memory that another one has given back to the system would have to be
    fetched again.
    """
    features_BND, lengths_B = make_sets(size), torch.full((BATCH,), size)
    times: dict[str, dict[str, float]] = {name: {} for name in pools}
    for name, pool in pools.items():
        for work in (training_step, inference):
            spent = []
            for _ in range(rounds + 1):
                started = time.process_time()
                work(pool, features_BND, lengths_B)
                spent.append(1e3 * (time.process_time() - started))
            times[name][work.__name__] = round(statistics.median(spent[1:]), 2)
    return times


def gpo_against_straightforward(rounds: int) -> dict[str, Any]:
    """Times and ratios at every size."""
    result = {}
    for size in SIZES:
        torch.manual_seed(0)
        ours = GeneralizedPooling()
        theirs = StraightforwardGpo(ours)
        times = milliseconds({"ours": ours, "straightforward": theirs}, size, rounds)
        ratios = {
            work: round(times["straightforward"][work] / times["ours"][work], 2) for work in times["straightforward"]
        }
        result[f"{BATCH}x{size}x{DIM}"] = {"milliseconds": times, "ratio": ratios}
        print(size, times, ratios, flush=True)
    return result


def views_against_one(rounds: int) -> dict[str, Any]:
    """Measure the cost of K views relative to one."""
    result = {}
    for size in (REGIONS, 196):
        times = milliseconds({f"K={k}": build_views(k, "gpo", DIM) for k in (1, VIEWS)}, size, rounds)
        ratios = {work: round(times[f"K={VIEWS}"][work] / times["K=1"][work], 2) for work in times["K=1"]}
        result[f"{BATCH}x{size}x{DIM}"] = {"milliseconds": times, "ratio": ratios}
        print(size, times, ratios, flush=True)
    return result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "pooling.json", help="JSON file for the result")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = origin()
    result |= {"rounds": arguments.rounds, "unit": "milliseconds of CPU time of one thread"}
    result["gpo"] = gpo_against_straightforward(arguments.rounds)
    result["views"] = views_against_one(arguments.rounds)
    result["machine_after"] = machine()
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
