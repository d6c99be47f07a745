"""What a process holds with its own copy of a model (DDP) and with a share of it (FSDP2), and what a step then costs.

The model: a BERT of MiniLM's size (6 layers of 384) over captions, GPO over regions; global batch 32, one thread each.
Bytes are those of weights, gradients and AdamW's moments after a step; the rest of the process is not in them.

Run: python tests/benchmarks/shared_weights.py
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from reader import RESULTS, machine  # noqa: E402

from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.ranks import run_ranks  # noqa: E402
from vse_core.losses import build_loss  # noqa: E402
from vse_core.models import build_model  # noqa: E402
from vse_core.training.optim import build_optimizer  # noqa: E402
from vse_core.training.sharding import shard  # noqa: E402
from vse_core.training.step import LocalBatch, training_step  # noqa: E402

BATCH, REGIONS, FEATURES, WORDS, VOCABULARY, STEPS = 32, 36, 2048, 16, 30_522, 5
BERT = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def local_bytes(tensor: Tensor) -> int:
    """Return what this process holds of a tensor."""
    mine = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return mine.numel() * mine.element_size()


def train(rank: int, parallelism: str, world: int, queue: Any) -> None:
    """Take some steps as one of several processes."""
    torch.manual_seed(0)
    text = {"name": "bert", "architecture": BERT, "pooling": {"name": "mean"}}
    model = build_model(FEATURES, VOCABULARY, 1024, {"pooling": {"name": "gpo"}, "mlp": True}, text)
    trained: nn.Module = model
    if parallelism == "fsdp2":
        shard(model)
    else:
        trained = nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False)
    optimizer = build_optimizer(model, 1e-4, 1e-4)
    own, generator = BATCH // world, torch.Generator().manual_seed(rank)
    inputs = (
        torch.rand(own, REGIONS, FEATURES, generator=generator),
        torch.full((own,), REGIONS),
        torch.randint(4, VOCABULARY, (own, WORDS), generator=generator),
        torch.full((own,), WORDS),
    )
    batch = LocalBatch(inputs, torch.arange(own) + own * rank, [own] * world)
    loss, seconds = build_loss(name="triplet"), []
    for _ in range(STEPS):
        dist.barrier()
        began = time.perf_counter()
        result = training_step(trained, loss, optimizer, [batch], 2.0)
        result.check()
        seconds.append(time.perf_counter() - began)
    held = [*model.parameters(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]
    held += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    queue.put((sum(map(local_bytes, held)) / 1e6, sorted(seconds)[STEPS // 2], result.loss.item()))


def measure(parallelism: str, world: int) -> dict[str, Any]:
    """Return the most that a process holds, the median step and the last loss."""
    queue = mp.get_context("spawn").SimpleQueue()
    run_ranks(train, world, parallelism, world, queue)
    megabytes, seconds, losses = zip(*(queue.get() for _ in range(world)), strict=True)
    return {
        "parallelism": parallelism,
        "processes": world,
        "megabytes": round(max(megabytes), 1),
        "step_seconds": round(max(seconds), 2),
        "loss": float(f"{losses[0]:.6g}"),
    }


def main() -> None:
    """Measure both ways on the same numbers of processes and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "shared_weights.json", help="JSON file for the result")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    arguments = parser.parse_args()
    runs = [measure(way, world) for world in arguments.processes for way in ("ddp", "fsdp2")]
    about = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), "batch": BATCH, "steps": STEPS}
    write_json_atomic(arguments.output, about | {"runs": runs})
    for run in runs:
        print(run)


if __name__ == "__main__":
    main()
