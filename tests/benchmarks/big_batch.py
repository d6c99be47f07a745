"""Memory and time of a step on a big batch: encoded in chunks with cached gradients, and encoded at once.

Each way is a process of its own, which takes one small step first, so that libraries, weights, gradients and the
optimiser's state are there before. What is reported is how far memory rises during the big step above what is held
before it: the resident set (Linux), on a GPU what is allocated. The gradients of both ways are compared on fewer pairs,
in float64: in float32 each is as far from that as rounding makes it, which is reported too.

Run: python tests/benchmarks/big_batch.py
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from evaluation import forget_peak, held_bytes
from reader import RESULTS, machine
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.grad_cache import ChunkedModel
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, StepResult, training_step

# Pairs that gradients are compared on.
COMPARED = 64
REGIONS, WIDTH, DIM, WORDS, VOCABULARY = 36, 2048, 1024, 13, 8481
# A network of MiniLM's size.
BERT = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
TEXTS: dict[str, dict[str, Any]] = {
    "regions and BiGRU": {"name": "bigru"},
    "regions and BERT": {"name": "bert", "architecture": BERT},
}


def make_batch(pairs: int, device: str) -> LocalBatch:
    """Random regions and captions."""
    generator = torch.Generator().manual_seed(pairs)
    inputs = (
        torch.rand(pairs, REGIONS, WIDTH, generator=generator).half(),
        torch.randint(24, REGIONS + 1, (pairs,), generator=generator),
        torch.randint(4, VOCABULARY, (pairs, WORDS + 4), generator=generator),
        torch.randint(WORDS - 4, WORDS + 5, (pairs,), generator=generator),
    )
    return LocalBatch([tensor.to(device) for tensor in inputs], torch.arange(pairs, device=device), [pairs])


class Way:
    """One way of taking the step.

    Args:
        system: key of `TEXTS`.
        chunk: pairs encoded at once; 0 encodes the whole batch.
        device: where to compute.
        dtype: of the weights.
    """

    def __init__(self, system: str, chunk: int, device: str, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        gpo = {"name": "gpo"}
        self.model: nn.Module = build_model(
            WIDTH, VOCABULARY, DIM, image={"pooling": gpo}, text={"pooling": gpo, **TEXTS[system]}
        ).to(device, dtype)
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # it draws other numbers in chunks, and the gradients are to be compared
        self.optimizer = build_optimizer(self.model, 0.0, 0.0)
        self.trained = ChunkedModel(self.model, chunk) if chunk else self.model
        self.device = device

    def step(self, share: LocalBatch) -> StepResult:
        """Take a step and wait for it."""
        # All negatives: the hardest may change with the last digit of a similarity.
        result = training_step(
            self.trained, build_loss("triplet", negatives="all", reduction="mean"), self.optimizer, [share], 1e9
        )
        result.check()
        return result

    def gradient(self) -> Tensor:
        """The gradient as one vector."""
        return torch.cat(
            [parameter.grad.flatten() for parameter in self.model.parameters() if parameter.grad is not None]
        )

    def begin(self) -> int:
        """The memory that is held now; the largest is that from here on."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated()
        ctypes.CDLL(None).malloc_trim(0)  # what is free must be taken from the system again, to be seen
        forget_peak()
        return held_bytes("VmRSS")

    def peak_bytes(self) -> int:
        """The largest memory since the beginning."""
        return torch.cuda.max_memory_allocated() if self.device == "cuda" else held_bytes("VmHWM")


def measure_one(system: str, chunk: int, pairs: int, device: str) -> dict[str, float]:
    """Take one big step."""
    way, share = Way(system, chunk, device), make_batch(pairs, device)
    way.step(make_batch(8, device))
    before, began = way.begin(), time.perf_counter()
    way.step(share)
    return {"seconds": time.perf_counter() - began, "bytes": way.peak_bytes() - before}


def differences(system: str, chunk: int, device: str) -> dict[str, float]:
    """Return the error of gradients against a float64 batch encoded at once, relative to that gradient's norm."""

    def gradient(chunk: int, dtype: torch.dtype) -> Tensor:
        way, share = Way(system, chunk, device, dtype), make_batch(COMPARED, device)
        way.step(LocalBatch([share.inputs[0].to(dtype), *share.inputs[1:]], share.image_ids_b, share.counts))
        return way.gradient().double()

    exact = gradient(0, torch.float64)
    return {
        name: float((gradient(*way) - exact).norm() / exact.norm())
        for name, way in {
            "in chunks, float64": (chunk, torch.float64),
            "in chunks, float32": (chunk, torch.float32),
            "at once, float32": (0, torch.float32),
        }.items()
    }


def in_a_process(arguments: argparse.Namespace, system: str, chunk: int) -> dict[str, float]:
    """Measure in a process of its own."""
    one = ["--one", system, str(chunk)]
    options = ["--pairs", str(arguments.pairs), "--threads", str(arguments.threads), "--device", arguments.device]
    done = subprocess.run([sys.executable, __file__, *one, *options], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(arguments: argparse.Namespace, system: str) -> dict[str, Any]:
    """Both ways, and what the one is of the other."""
    whole, chunks = (in_a_process(arguments, system, chunk) for chunk in (0, arguments.chunk))
    return {
        "megabytes": {"at once": round(whole["bytes"] / 1e6), "in chunks": round(chunks["bytes"] / 1e6)},
        "seconds": {"at once": round(whole["seconds"], 2), "in chunks": round(chunks["seconds"], 2)},
        "memory_ratio": round(chunks["bytes"] / whole["bytes"], 3),
        "time_ratio": round(chunks["seconds"] / whole["seconds"], 3),
        "relative_differences_of_gradients": differences(system, COMPARED // 4, arguments.device),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "big_batch.json", help="JSON file for the result")
    parser.add_argument("--pairs", type=int, default=512, help="pairs of the batch")
    parser.add_argument("--chunk", type=int, default=64, help="pairs encoded at once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--one", nargs=2, metavar=("SYSTEM", "CHUNK"), help="measure one way, for itself")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        system, chunk = arguments.one
        print(json.dumps(measure_one(system, int(chunk), arguments.pairs, arguments.device)))
        return
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    result |= {"threads": arguments.threads, "device": arguments.device}
    result |= {"pairs": arguments.pairs, "chunk": arguments.chunk}
    result["systems"] = {system: compare(arguments, system) for system in TEXTS}
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
