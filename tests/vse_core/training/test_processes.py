"""One global batch shared by 1, 2 and 4 processes gives every loss, its gradients and statistics of one process."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.vse_core.training.tiny_unified import (
    adversarial_batch,
    random_components,
    share_of,
    tiny_adversarial,
    tiny_unified,
    unified_batch,
)
from tests.vse_core.training.tiny_views import LOSSES, TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.training.step import training_step

SIZE = 11  # shared unevenly by 2 and by 4

# The second of two processes, and the third and fourth of four, have no relations; in `unified-bare` nobody has any
# component. The last process has no adversarial captions.
UNIFIED = {
    "unified": {"name": "unified"},
    "unified-all": {"name": "unified", "negatives": "all"},
    "unified-bare": {"name": "unified"},
}
ADVERSARIAL = {"vse_c": {"name": "vse_c"}, "vse_c-mean": {"name": "vse_c", "reduction": "mean"}}
SYSTEMS = LOSSES | UNIFIED | ADVERSARIAL


def all_steps(rank: int, world: int, port: int, out: str) -> None:
    """One step from the same weights with each loss, as one of several processes."""
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    found = {}
    for model, names in ((TinyViews(views=3), LOSSES), (tiny_unified(), UNIFIED), (tiny_adversarial(), ADVERSARIAL)):
        # In float64, so that differences of order in float32's sums do not hide others.
        model = model.double()
        wrapped = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False) if world > 1 else model
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name in names:
            model.load_state_dict(start)
            found[name] = one_step(wrapped, name, rank, world)
    if rank == world - 1:  # not the first: every process must have the same
        torch.save(found, out)
    if world > 1:
        dist.destroy_process_group()


def one_step(model: torch.nn.Module, name: str, rank: int, world: int) -> dict[str, dict]:
    inputs, ids = batch_of(name)
    inputs[0] = inputs[0].double()
    inputs, mine, counts = share_of(inputs, rank, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = build_loss(**SYSTEMS[name], mask_same_image=True)
    result = training_step(model, loss, optimizer, inputs, ids[mine], counts, 1e9)
    tensors = {
        "loss": {"total": result.loss, **result.parts},
        "gradients": {name.removeprefix("module."): p.grad for name, p in model.named_parameters()},
        "state": {name.removeprefix("module."): tensor for name, tensor in model.state_dict().items()},
    }
    return {kind: {name: tensor.clone() for name, tensor in found.items()} for kind, found in tensors.items()}


def batch_of(name: str) -> tuple[list, torch.Tensor]:
    if name in LOSSES:
        return random_batch(SIZE, seed=1)
    if name in ADVERSARIAL:
        return adversarial_batch(SIZE, seed=1)
    inputs, ids = unified_batch(SIZE, seed=1)
    if name == "unified-bare":
        inputs[4] = random_components(SIZE, torch.Generator().manual_seed(1), without=tuple(range(SIZE)))
    return inputs, ids


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, dict[str, torch.Tensor]]]]:
    """What each number of processes found; importing torch takes long, so they share it, and do all losses at once."""
    folder = tmp_path_factory.mktemp("steps")
    mp.get_context("forkserver").set_forkserver_preload([__name__, "torch._dynamo"])
    all_steps(0, 1, 0, str(folder / "1.pt"))
    for world in (2, 4):
        arguments = (world, free_port(), str(folder / f"{world}.pt"))
        mp.start_processes(all_steps, args=arguments, nprocs=world, start_method="forkserver")
    return {world: torch.load(folder / f"{world}.pt", weights_only=True) for world in (1, 2, 4)}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("loss", SYSTEMS)
def test_gradients_of_the_global_batch(steps, loss: str, world: int):
    for kind in ("loss", "gradients", "state"):
        for name, expected in steps[1][loss][kind].items():
            found = steps[world][loss][kind][name]
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    assert max(gradient.abs().max() for gradient in steps[1][loss]["gradients"].values()) > 1e-3
