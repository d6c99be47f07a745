"""The synthetic study of GPO: which generators of pooling coefficients learn known poolings, for unseen sizes too?

The supplementary material of VSE-infinity trains coefficient generators on sets of random vectors to imitate fixed
poolings, and compares the generated coefficients with the true ones. Here sets have 20 to 100 elements in training; 10
to 19 and 101 to 120 are only tested.

Run: python tests/benchmarks/gpo_study.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.pooling.gpo import GeneralizedPooling, rank_codes, rank_states
from vse_core.pooling.learned import interpolation_weights
from vse_core.pooling.sorting import rank_weighted_sum

RESULTS = Path(__file__).with_name("results")
PLOT = Path(__file__).resolve().parents[2] / "docs/images/gpo_study.png"
RANGES = {"seen 20-100": range(20, 101), "smaller 10-19": range(10, 20), "larger 101-120": range(101, 121)}
LARGEST = 120
HIDDEN, PIECES, TEMPERATURE = 32, 20, 0.1
SIZES, SETS, DIMENSIONS, RATE = 4, 8, 64, 0.01
"""Sizes a step, sets of each, width of their vectors, highest rate of Adam (one cycle with cosine decay)."""


class _IndexEmbedding(nn.Module):
    """A learned vector per rank instead of its sines and cosines, then the same BiGRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LARGEST, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(HIDDEN, 1, bias=False)

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        sizes_U, row_of_B = torch.unique(lengths_B, return_inverse=True)
        states_UNH = rank_states(self.gru, self.embed.weight[:size], sizes_U)
        return _softmax(self.linear(states_UNH.to(self.linear.weight)).squeeze(-1)[row_of_B], lengths_B)


class _PositionMlp(nn.Module):
    """An MLP over the code of the rank, and of the size if it is told; the paper's is not, so that it does not know it.

    A BiGRU learns the size of the set by itself, from the number of codes that it reads.
    """

    def __init__(self, knows_size: bool) -> None:
        super().__init__()
        self.knows_size = knows_size
        self.layers = nn.Sequential(
            nn.Linear((1 + knows_size) * HIDDEN, 2 * HIDDEN), nn.ReLU(), nn.Linear(2 * HIDDEN, 2 * HIDDEN), nn.ReLU(),
            nn.Linear(2 * HIDDEN, 1),
        )  # fmt: skip

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        codes = rank_codes(LARGEST + 1, HIDDEN)
        codes_BNP = codes[:size].expand(len(lengths_B), -1, -1)
        if self.knows_size:
            codes_BNP = torch.cat((codes_BNP, codes[lengths_B].unsqueeze(1).expand_as(codes_BNP)), dim=-1)
        return _softmax(self.layers(codes_BNP).squeeze(-1), lengths_B)


class _InterpolatedVector(nn.Module):
    """One trainable vector, interpolated to the size of the set, as FSPool does for every dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(PIECES + 1))

    def coefficients(self, lengths_B: Tensor, size: int) -> Tensor:
        return _softmax(self.vector @ interpolation_weights(lengths_B, size, PIECES).float(), lengths_B)


def _softmax(scores_BN: Tensor, lengths_B: Tensor) -> Tensor:
    padded_BN = torch.arange(scores_BN.shape[1]) >= lengths_B.unsqueeze(-1)
    return (scores_BN / TEMPERATURE).masked_fill(padded_BN, -float("inf")).softmax(dim=-1)


GENERATORS: dict[str, Callable[[], nn.Module]] = {
    "sine-cosine + BiGRU (GPO)": lambda: GeneralizedPooling(HIDDEN, HIDDEN, TEMPERATURE),
    "index embedding + BiGRU": _IndexEmbedding,
    "sine-cosine + MLP": lambda: _PositionMlp(knows_size=False),
    "sine-cosine of rank and size + MLP": lambda: _PositionMlp(knows_size=True),
    "interpolated vector (FSPool)": _InterpolatedVector,
}
TARGETS: dict[str, Callable[[int], Tensor]] = {
    "mean": lambda n: torch.ones(n),
    "max": lambda n: (torch.arange(n) < 1).float(),
    "10 largest": lambda n: (torch.arange(n) < 10).float(),
    "top half": lambda n: (torch.arange(n) < n // 2).float(),
    "linear decay": lambda n: torch.arange(n, 0, -1).float(),
}
"""Weights of the ranks of a set of n elements, before they are scaled to sum to 1."""


def target_coefficients(target: str, lengths_B: Tensor, size: int) -> Tensor:
    """The true coefficients (B, size) of a pooling."""
    rows = [TARGETS[target](length) for length in lengths_B.tolist()]
    return torch.stack([nn.functional.pad(row / row.sum(), (0, size - len(row))) for row in rows])


def train(generator: nn.Module, target: str, steps: int, seed: int) -> None:
    """Teach a generator one pooling from random vectors and their pooled results alone."""
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(generator.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    sizes = RANGES["seen 20-100"]
    for _ in range(steps):
        lengths_B = torch.randint(sizes.start, sizes.stop, (SIZES,)).repeat_interleave(SETS)
        longest = int(lengths_B.max())
        features_BND = torch.randn(len(lengths_B), longest, DIMENSIONS)
        error_BN = generator.coefficients(lengths_B, longest) - target_coefficients(target, lengths_B, longest)
        # Pooling is linear in the coefficients: pooling with their error gives the error of the pooled vectors.
        loss = rank_weighted_sum(features_BND, lengths_B, error_BN.unsqueeze(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def coefficient_error(generator: nn.Module, target: str, sizes: range) -> float:
    """Root of the mean squared error of a coefficient, over all ranks of all sizes."""
    lengths_B = torch.tensor(list(sizes))
    longest = sizes.stop - 1
    error_BN = generator.coefficients(lengths_B, longest) - target_coefficients(target, lengths_B, longest)
    return float((error_BN.square().sum() / lengths_B.sum()).sqrt())


def study(steps: int, seed: int) -> tuple[dict[str, Any], dict[str, dict[str, nn.Module]]]:
    """Train every generator on every target; returns the errors and the trained generators."""
    errors: dict[str, Any] = {}
    trained: dict[str, dict[str, nn.Module]] = {}
    for name, build in GENERATORS.items():
        for target in TARGETS:
            started = time.perf_counter()
            torch.manual_seed(seed)
            generator = build()
            train(generator, target, steps, seed)
            trained.setdefault(name, {})[target] = generator
            found = {label: round(coefficient_error(generator, target, sizes), 4) for label, sizes in RANGES.items()}
            errors.setdefault(name, {})[target] = found
            print(f"{name:34} {target:14} {found} {time.perf_counter() - started:.0f} s", flush=True)
    return errors, trained


@torch.no_grad()
def plot(trained: dict[str, dict[str, nn.Module]], path: Path) -> None:
    """Draw the true and the learned coefficients at an unseen small, a seen and an unseen large size."""
    from matplotlib.figure import Figure

    sizes = (15, 60, 115)
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.subplots(len(TARGETS), len(sizes), squeeze=False)
    for row, target in enumerate(TARGETS):
        for axis, size in zip(axes[row], sizes, strict=True):
            length = torch.tensor([size])
            axis.plot(target_coefficients(target, length, size)[0], color="black", linewidth=3, alpha=0.3, label="true")
            for name, generators in trained.items():
                axis.plot(generators[target].coefficients(length, size)[0], linewidth=1, label=name)
            axis.set_ylim(bottom=0)
            axis.tick_params(labelsize=7)
            if row == 0:
                seen = "seen" if size in RANGES["seen 20-100"] else "unseen"
                axis.set_title(f"{size} elements ({seen})", fontsize=9)
        axes[row, 0].set_ylabel(target, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("rank", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Run the study and write its errors and its plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpo_study.json")
    parser.add_argument("--plot", type=Path, default=PLOT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    errors, trained = study(arguments.steps, arguments.seed)
    result = {
        "command": shlex.join(["python", *sys.argv]),
        "steps": arguments.steps,
        "seed": arguments.seed,
        "sizes_per_step": SIZES,
        "sets_per_size": SETS,
        "dimensions": DIMENSIONS,
        "highest_rate": RATE,
        "torch": torch.__version__,
        "coefficient_rmse": errors,
    }
    write_json_atomic(arguments.output, result)
    plot(trained, arguments.plot)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
