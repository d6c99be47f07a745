"""Processes that share the weights (FSDP2): losses, checkpoints and resumption of one that has them all."""

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file

from pipelines.training.preemption import CheckpointRequests
from tests.pipelines.training.test_trainer import (
    LEARNED,
    KilledError,
    Recorder,
    losses_of,
    make_config,
    make_trainer,
    run_group,
    shards,
)
from tests.ranks import run_ranks
from vse_core.training.sharding import clip_gradients

__all__ = ["shards"]

SHARED = "training.parallelism=fsdp2"
SETTINGS = {
    "plain": [],
    "accumulated": ["training.accumulation=3"],
    "learned": [LEARNED],
    "all": [LEARNED, "training.accumulation=2"],
}

# The batch norm takes the bias before it away: its gradient is what rounding leaves, of which AdamW makes whole steps.
BEFORE_BATCH_NORM = {"image_encoder.mlp.hidden.bias", "image_encoder.mlp.norm.running_mean"}


@pytest.mark.integration
@pytest.mark.parametrize("variant", SETTINGS)
def test_two_processes_train_and_keep_the_model_of_one(shards: Path, tmp_path: Path, variant: str) -> None:
    settings = SETTINGS[variant]
    make_trainer(make_config(*settings), shards, tmp_path / "one", Recorder()).run()
    run_group(2, shards, tmp_path / "two", settings=(*settings, SHARED))
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-4)
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.safetensors")}
    assert {path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*.safetensors")} == files
    assert {file.name for file in files} >= {"model.safetensors", "optimizer.safetensors"}
    for file in files:
        one, two = load_file(tmp_path / "one" / file), load_file(tmp_path / "two" / file)
        assert {name: tensor.shape for name, tensor in two.items()} == {name: one[name].shape for name in one}
        if file.name == "model.safetensors":
            for name in one.keys() - BEFORE_BATCH_NORM:
                torch.testing.assert_close(two[name], one[name], rtol=1e-2, atol=1e-3)
    histories = [json.loads((tmp_path / "two" / f"history-{rank}.json").read_text()) for rank in (0, 1)]
    assert histories[0] == histories[1]


@pytest.mark.integration
def test_a_killed_run_goes_on_with_other_shares(shards: Path, tmp_path: Path) -> None:
    make_trainer(make_config(), shards, tmp_path / "whole", Recorder()).run()
    killed = tmp_path / "killed"
    with pytest.raises(mp.ProcessRaisedException, match="KilledError"):
        run_group(3, shards, killed, die_at=8, settings=(SHARED,))
    with pytest.raises(KilledError):
        make_trainer(make_config(), shards, killed, Recorder(die_at=13)).run()
    with pytest.raises(mp.ProcessRaisedException, match="KilledError"):
        run_group(2, shards, killed, die_at=19)
    run_group(2, shards, killed, settings=(SHARED,))
    assert losses_of(killed) == pytest.approx(losses_of(tmp_path / "whole"), rel=1e-4)


def count_shares(rank: int, shards: Path, out: Path) -> None:
    trainer = make_trainer(make_config(SHARED), shards, out, Recorder() if rank == 0 else None)
    trainer.run()
    moments = [state["exp_avg"] for state in trainer.optimizer.state.values()]
    mine = [sum(part.to_local().numel() for part in parts) for parts in (trainer.model.parameters(), moments)]
    all_of_it = [sum(part.numel() for part in parts) for parts in (trainer.model.parameters(), moments)]
    (out / f"shares-{rank}.json").write_text(json.dumps([mine, all_of_it]))


@pytest.mark.integration
def test_a_process_keeps_its_share_of_weights_and_optimizer(shards: Path, tmp_path: Path) -> None:
    run_ranks(count_shares, 4, shards, tmp_path)
    found = [json.loads((tmp_path / f"shares-{rank}.json").read_text()) for rank in range(4)]
    weights, moments = found[0][1]
    assert weights == moments
    assert [sum(mine[kind] for mine, _ in found) for kind in (0, 1)] == [weights, moments]
    assert max(mine[0] for mine, _ in found) < 0.35 * weights


class Requests(CheckpointRequests):
    """A process asks for a checkpoint after some steps, and is killed once it is safe."""

    def __init__(self, tracker: Recorder) -> None:
        self.tracker = tracker

    def is_wanted(self) -> bool:
        return len(self.tracker.metrics) >= 4

    def answer(self) -> None:
        raise KilledError


def train_until_asked(rank: int, shards: Path, out: Path) -> None:
    config = make_config(SHARED, "training.checkpoint_minutes=100")
    tracker = Recorder()
    trainer = make_trainer(config, shards, out, tracker if rank == 0 else None)
    trainer.requests = Requests(tracker)
    trainer.run()


@pytest.mark.integration
def test_all_processes_make_the_checkpoint_that_the_first_is_asked_for(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(mp.ProcessRaisedException, match="KilledError"):
        run_ranks(train_until_asked, 2, shards, tmp_path)
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    alone = make_trainer(make_config(), shards, tmp_path, None)
    assert alone.progress.epoch == 0
    assert load_file(checkpoint / "model.safetensors").keys() == alone.model.state_dict().keys()


def test_gradients_are_clipped_as_by_torch() -> None:
    weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((3, 2), (5,), (1,))]
    gradients = [torch.randn(3, 2), torch.randn(5)]
    for weight, gradient in zip(weights, gradients, strict=False):
        weight.grad = gradient.clone()
    norm = clip_gradients(weights, 0.5)
    expected = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(weights[1].grad, gradients[1] * 0.5 / (expected + 1e-6))
    assert weights[2].grad is None
    assert clip_gradients([torch.nn.Parameter(torch.zeros(2))], 1.0) == 0
