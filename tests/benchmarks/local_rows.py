"""Memory and time of the loss by global batch and processes, and one step on a very big batch with cached gradients.

Every process computes with one thread; time is its own CPU time, so that processes that share a core do not hide what
each has to do. Memory is how far the resident set (Linux) rises during the forward and backward pass of the loss above
what is held before it; for the big step the largest resident set of the process, with libraries, inputs and all.
Figures of another version are measured with its tree in PYTHONPATH, under a label of their own.

Run: python tests/benchmarks/local_rows.py --label after
     python tests/benchmarks/local_rows.py --label after --big 32768
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from evaluation import forget_peak, held_bytes  # noqa: E402
from reader import RESULTS, machine  # noqa: E402

from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.ranks import run_ranks  # noqa: E402
from vse_core.losses import build_loss  # noqa: E402
from vse_core.models import build_model  # noqa: E402
from vse_core.similarity import unit_length  # noqa: E402
from vse_core.training.grad_cache import ChunkedModel  # noqa: E402
from vse_core.training.optim import build_optimizer  # noqa: E402
from vse_core.training.step import LocalBatch, training_step  # noqa: E402

DIM = 1024
LOSSES: dict[str, dict[str, Any]] = {
    "triplet, hardest": {"name": "triplet"},
    "triplet, all": {"name": "triplet", "negatives": "all"},
    "adopt": {"name": "adopt"},
    "infonce, learned": {"name": "infonce", "learned": True},
    "sigmoid": {"name": "sigmoid"},
}
# Towers that cost next to nothing: two region vectors and six words a pair.
FEATURES, WORDS, VOCABULARY, CHUNK = 64, 6, 1000, 128
BERT = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def local_counts(pairs: int, world: int) -> list[int]:
    """Return the pairs of each process; the last has fewer."""
    share = -(-pairs // world)
    return [min(share, pairs - share * rank) for rank in range(world)]


def loss_of_embeddings(name: str, rank: int, counts: list[int]) -> dict[str, float]:
    """Measure the loss, forward and backward, of random embeddings."""
    torch.manual_seed(rank)
    images_b1D, texts_bD = (unit_length(torch.randn(counts[rank], DIM)) for _ in range(2))
    leaves = images_b1D.unsqueeze(1).requires_grad_(), texts_bD.requires_grad_()
    ids = torch.arange(counts[rank]) + sum(counts[:rank])
    loss = build_loss(**LOSSES[name])
    before = held_bytes("VmRSS")
    forget_peak()
    began = time.process_time()
    result = loss.from_local_batch(leaves, ids, counts)
    result.total.backward()
    seconds = time.process_time() - began
    return {"megabytes": (held_bytes("VmHWM") - before) / 1e6, "seconds": seconds, "loss": result.total.item()}


def big_step(name: str, rank: int, counts: list[int]) -> dict[str, float]:
    """Take one step with cached gradients."""
    torch.manual_seed(0)
    text = {"name": "bert", "architecture": BERT, "pooling": {"name": "mean"}}
    model = build_model(FEATURES, VOCABULARY, DIM, {"pooling": {"name": "mean"}, "mlp": False}, text)
    wrapped: nn.Module = ChunkedModel(model, CHUNK)
    if len(counts) > 1:
        wrapped = nn.parallel.DistributedDataParallel(wrapped, forward_sync_buffers=False)
    own, generator = counts[rank], torch.Generator().manual_seed(rank)
    inputs = (
        torch.rand(own, 2, FEATURES, generator=generator),
        torch.full((own,), 2),
        torch.randint(4, VOCABULARY, (own, WORDS), generator=generator),
        torch.full((own,), WORDS),
    )
    batch = LocalBatch(inputs, torch.arange(own) + sum(counts[:rank]), counts)
    optimizer = build_optimizer(model, 1e-4, 0.0)
    forget_peak()
    began = time.process_time()
    result = training_step(wrapped, build_loss(**LOSSES[name]), optimizer, [batch], 2.0)
    result.check()
    seconds = time.process_time() - began
    return {"megabytes": held_bytes("VmHWM") / 1e6, "seconds": seconds, "loss": result.loss.item()}


def one_of_several(rank: int, way: Any, name: str, counts: list[int], queue: Any) -> None:
    """Measure as one of several processes."""
    dist.barrier()
    queue.put(way(name, rank, counts))


def measure(way: Any, name: str, pairs: int, world: int) -> dict[str, Any]:
    """Return the largest memory and CPU time of any of the processes."""
    counts = local_counts(pairs, world)
    queue = mp.get_context("spawn").SimpleQueue()
    run_ranks(one_of_several, world, way, name, counts, queue)
    found = [queue.get() for _ in counts]
    return {
        "loss": name,
        "pairs": pairs,
        "processes": world,
        "megabytes": round(max(each["megabytes"] for each in found)),
        "cpu_seconds": round(max(each["seconds"] for each in found), 2),
        "value": float(f"{found[0]['loss']:.6g}"),
    }


def main() -> None:
    """Measure and add the figures to the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "local_rows.json", help="JSON file for the result")
    parser.add_argument("--label", required=True, help="which version is measured")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--big", type=int, help="pairs of one step with cached gradients on four processes, instead")
    arguments = parser.parse_args()
    result = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"dimensions": DIM}
    about = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    if arguments.big:
        runs = [measure(big_step, "triplet, hardest", arguments.big, 4)]
    else:
        runs = [
            measure(loss_of_embeddings, name, pairs, world)
            for name in arguments.losses
            for pairs in arguments.pairs
            for world in arguments.processes
        ]
    result[f"{arguments.label}{', big step' if arguments.big else ''}"] = about | {"runs": runs}
    write_json_atomic(arguments.output, result)
    print("\n".join(map(json.dumps, runs)))


if __name__ == "__main__":
    main()
