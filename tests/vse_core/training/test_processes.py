"""One global batch shared by 1, 2 and 4 processes gives the loss, gradients and statistics of one process."""

import itertools
import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.step import training_step

SIZE = 11  # shared unevenly by 2 and by 4
SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 13,
    "embed_dim": 8,
    "image": {"pooling": {"name": "gpo"}, "mlp": True},
    "text": {"pooling": {"name": "gpo"}, "word_dim": 6},
}


def one_step(rank: int, world: int, port: int, negatives: str, out: str) -> None:
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = build_model(**SPECIFICATION)
    generator = torch.Generator().manual_seed(1)
    batch = [
        torch.randn(SIZE, 6, 5, generator=generator),
        torch.randint(1, 7, (SIZE,), generator=generator),
        torch.randint(0, 13, (SIZE, 7), generator=generator),
        torch.randint(1, 8, (SIZE,), generator=generator),
    ]
    ids = torch.randint(0, 5, (SIZE,), generator=generator)
    edges = [r * SIZE // world for r in range(world + 1)]
    mine = slice(edges[rank], edges[rank + 1])
    wrapped = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = [stop - start for start, stop in itertools.pairwise(edges)]
    loss = build_loss("triplet", negatives=negatives, mask_same_image=True)
    result = training_step(wrapped, loss, optimizer, [x[mine] for x in batch], ids[mine], counts, 1e9)
    if rank == world - 1:  # not the first: every process must have the same
        gradients = {name: p.grad for name, p in model.named_parameters()}
        torch.save({"loss": result.loss, "gradients": gradients, "state": model.state_dict()}, out)
    if world > 1:
        dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_gradients_of_the_global_batch(tmp_path: Path, negatives: str):
    one_step(0, 1, 0, negatives, str(tmp_path / "1.pt"))
    expected = torch.load(tmp_path / "1.pt", weights_only=True)
    for world in (2, 4):
        out = tmp_path / f"{world}.pt"
        mp.spawn(one_step, args=(world, free_port(), negatives, str(out)), nprocs=world)
        found = torch.load(out, weights_only=True)
        torch.testing.assert_close(found["loss"], expected["loss"], atol=1e-6, rtol=1e-6)
        for kind in ("gradients", "state"):
            for name, tensor in expected[kind].items():
                torch.testing.assert_close(found[kind][name], tensor, atol=1e-6, rtol=1e-5, msg=f"{world}: {name}")
