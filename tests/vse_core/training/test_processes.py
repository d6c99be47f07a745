"""A global batch shared by 1, 2, 4 processes, at once or in blocks of the loss, gives what one process gives."""

from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.ranks import run_ranks
from tests.vse_core.training.tiny_levels import levels_batch, tiny_levels
from tests.vse_core.training.tiny_unified import (
    adversarial_batch,
    random_components,
    share_of,
    tiny_adversarial,
    tiny_unified,
    unified_batch,
)
from tests.vse_core.training.tiny_views import LOSSES as RECORDED
from tests.vse_core.training.tiny_views import TinyViews, random_batch
from vse_core.losses import build_loss, global_pairs
from vse_core.training.step import LocalBatch, training_step

SIZE = 11  # shared unevenly by 2 and by 4

LOSSES = RECORDED | {
    "triplet-mean": {"name": "triplet", "reduction": "mean"},
    "multi_view-up": {"name": "multi_view", "bound": "up"},
    "infonce-learned": {"name": "infonce", "learned": True},
    "sigmoid-learned": {"name": "sigmoid", "learned": True, "bias": -1.0},
    "complementary": {"name": "complementary"},
}
# The second of two processes, and the third and fourth of four, have no relations; in `unified-bare` nobody has any
# component. The last process has no adversarial captions.
UNIFIED = {
    "unified": {"name": "unified"},
    "unified-all": {"name": "unified", "negatives": "all"},
    "unified-bare": {"name": "unified"},
}
ADVERSARIAL = {"vse_c": {"name": "vse_c"}, "vse_c-mean": {"name": "vse_c", "reduction": "mean"}}
# Captions have no phrases here and there, and the shares of the processes are padded to their own longest video.
HIERARCHICAL = {"hierarchical": {"name": "hierarchical"}}
SYSTEMS = LOSSES | UNIFIED | ADVERSARIAL | HIERARCHICAL
BLOCK = 70  # numbers: an anchor compares 11 candidates with 3 views, so two at once; with the frames of a video, one


def all_steps(rank: int, world: int, out: Path) -> None:
    """One step from the same weights with each loss, as one of several processes."""
    torch.set_num_threads(1)
    found = {}
    systems = (
        (TinyViews(views=3), LOSSES),
        (tiny_unified(), UNIFIED),
        (tiny_adversarial(), ADVERSARIAL),
        (tiny_levels(), HIERARCHICAL),
    )
    for model, names in systems:
        # In float64, so that differences of order in float32's sums do not hide others.
        model = model.double()
        wrapped = distributed(model, world)
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name in names:
            model.load_state_dict(start)
            found[name] = one_step(wrapped, name, rank, world)
            model.load_state_dict(start)
            with mock.patch.object(global_pairs, "BLOCK", BLOCK):
                found[f"{name}, in blocks"] = one_step(wrapped, name, rank, world)
            model.load_state_dict(start)
            if name == "infonce":
                found["accumulated"] = one_step(wrapped, name, rank, world, seeds=(1, 2, 3))
    if rank == world - 1:  # not the first: every process must have the same
        torch.save(found, out)


def distributed(model: torch.nn.Module, world: int) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False) if world > 1 else model


def one_step(
    model: torch.nn.Module, name: str, rank: int, world: int, seeds: tuple[int, ...] = (1,)
) -> dict[str, dict]:
    shares = []
    for seed in seeds:
        inputs, ids = batch_of(name, seed)
        inputs[0] = inputs[0].double()
        inputs, mine, counts = share_of(inputs, rank, world)
        shares.append(LocalBatch(inputs, ids[mine], counts))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = build_loss(**SYSTEMS[name], mask_same_image=True).double()
    result = training_step(model, loss, optimizer, shares, 1e9)
    tensors = {
        "loss": {"total": result.loss, **result.parts},
        "gradients": {plain_name(name): p.grad for name, p in (*model.named_parameters(), *loss.named_parameters())},
        "state": {plain_name(name): tensor for name, tensor in model.state_dict().items()},
    }
    return {kind: {name: tensor.clone() for name, tensor in found.items()} for kind, found in tensors.items()}


def plain_name(name: str) -> str:
    return name.removeprefix("module.")


def batch_of(name: str, seed: int) -> tuple[list, torch.Tensor]:
    if name in LOSSES:
        return random_batch(SIZE, seed)
    if name in ADVERSARIAL:
        return adversarial_batch(SIZE, seed)
    if name in HIERARCHICAL:
        return levels_batch(SIZE, seed)
    inputs, ids = unified_batch(SIZE, seed)
    if name == "unified-bare":
        inputs[4] = random_components(SIZE, torch.Generator().manual_seed(seed), without=tuple(range(SIZE)))
    return inputs, ids


@pytest.fixture(scope="session")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, dict[str, torch.Tensor]]]]:
    """Results by number of processes; importing torch takes long, so each process does all losses at once."""
    folder = tmp_path_factory.mktemp("steps")
    all_steps(0, 1, folder / "1.pt")
    for world in (2, 4):
        run_ranks(all_steps, world, world, folder / f"{world}.pt")
    return {world: torch.load(folder / f"{world}.pt", weights_only=True) for world in (1, 2, 4)}


def assert_same(found: dict[str, dict], expected: dict[str, dict]) -> None:
    for kind in ("loss", "gradients", "state"):
        assert found[kind].keys() == expected[kind].keys()
        for name, tensor in expected[kind].items():
            torch.testing.assert_close(
                found[kind][name], tensor, atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
            )
    assert max(gradient.abs().max() for gradient in expected["gradients"].values()) > 1e-3


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("loss", SYSTEMS)
def test_gradients_of_the_global_batch(steps, loss: str, world: int):
    assert_same(steps[world][loss], steps[1][loss])


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("loss", SYSTEMS)
def test_blocks_of_the_loss_have_the_gradients_of_the_loss_at_once(steps, loss: str, world: int):
    assert_same(steps[world][f"{loss}, in blocks"], steps[1][loss])


@pytest.mark.parametrize("world", [2, 4])
def test_accumulated_gradients_are_exchanged_once_and_whole(steps, world: int):
    assert_same(steps[world]["accumulated"], steps[1]["accumulated"])
