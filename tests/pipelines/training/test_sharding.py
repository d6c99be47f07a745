"""Processes that share the weights (FSDP2): losses, checkpoints and resumption of one that has them all."""

import json
from operator import itemgetter
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.multiprocessing as mp
from safetensors import safe_open
from safetensors.torch import load_file

from pipelines.config import PipelineConfig
from pipelines.training.checkpoints import Checkpoints
from pipelines.training.preemption import CheckpointRequests
from preprocessing.storage.mirror import CONTENTS, Mirror
from tests.pipelines.training import test_text_encoders as texts
from tests.pipelines.training.test_checkpoints import SPECIFICATION
from tests.pipelines.training.test_trainer import (
    LEARNED,
    KilledError,
    Recorder,
    losses_of,
    make_config,
    make_trainer,
    run_group,
    shards,
    write_split,
)
from tests.ranks import run_ranks
from vse_core.digests import check_digests
from vse_core.models import build_model, load_model
from vse_core.training.sharding import clip_gradients, shard
from vse_core.training.state import Progress

__all__ = ["shards"]

SHARED = "training.parallelism=fsdp2"
SETTINGS = {"plain": [], "accumulated, with a learned temperature": [LEARNED, "training.accumulation=3"]}

# The batch norm takes the bias before it away: its gradient is what rounding leaves, of which AdamW makes whole steps.
BEFORE_BATCH_NORM = {"image_encoder.mlp.hidden.bias", "image_encoder.mlp.norm.running_mean"}


def complete(folder: Path) -> dict[str, torch.Tensor]:
    """Put the tensors in all files of a folder together, by the offsets in the files' headers."""
    parts: dict[str, list[tuple[list[int], torch.Tensor]]] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            offsets = json.loads((opened.metadata() or {}).get("DCP_SHARDING_INFO", "{}"))
            for name in opened.keys():  # noqa: SIM118
                first = offsets[name]["saved_offsets"] if offsets else []
                parts.setdefault(name, []).append((first, opened.get_tensor(name)))
    ordered = {name: [part for _, part in sorted(found, key=itemgetter(0))] for name, found in parts.items()}
    return {name: torch.cat(found) if len(found) > 1 else found[0] for name, found in ordered.items()}


@pytest.mark.integration
@pytest.mark.parametrize("variant", SETTINGS)
def test_two_processes_train_and_keep_the_model_of_one(shards: Path, tmp_path: Path, variant: str) -> None:
    settings = SETTINGS[variant]
    make_trainer(make_config(*settings), shards, tmp_path / "one", Recorder()).run()
    run_group(2, shards, tmp_path / "two", settings=(*settings, SHARED))
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-4)
    folders = {path.parent.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.safetensors")}
    assert {path.parent.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*.safetensors")} == folders
    for folder in folders:
        one, two = complete(tmp_path / "one" / folder), complete(tmp_path / "two" / folder)
        assert {name: tensor.shape for name, tensor in two.items()} == {name: one[name].shape for name in one}
        for name in one.keys() - BEFORE_BATCH_NORM:
            if name in load_file(next((tmp_path / "one").glob("best-*")) / "model.safetensors"):
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


@pytest.mark.integration
def test_a_killed_run_resumes_exactly_with_the_same_shares(shards: Path, tmp_path: Path) -> None:
    run_group(2, shards, tmp_path / "whole", settings=(SHARED,))
    with pytest.raises(mp.ProcessRaisedException, match="KilledError"):
        run_group(2, shards, tmp_path / "killed", die_at=13, settings=(SHARED,))
    half_written = tmp_path / "killed/checkpoints/.step-00000099.tmp"
    half_written.mkdir()
    run_group(2, shards, tmp_path / "killed", settings=(SHARED,))
    assert losses_of(tmp_path / "killed") == losses_of(tmp_path / "whole")
    assert not half_written.exists()


def save_from(rank: int, root: Path, address: Path | None) -> None:
    """Save the best model of an epoch from the disk of each process."""
    torch.manual_seed(0)
    model = build_model(**SPECIFICATION)
    shard(model)
    mirror = Mirror(root / str(rank), None if address is None else str(address))
    (mirror.root / "run").mkdir(parents=True)
    checkpoints = Checkpoints(mirror.root / "run", lambda folder, progress: None, mirror, minutes=0)
    checkpoints.save(1, model, torch.optim.AdamW(model.parameters()), Progress(1, history=({"rsum": 1.0},)), True)
    checkpoints.wait() if rank == 0 else checkpoints.close()


@pytest.mark.integration
def test_disks_of_several_machines_have_a_storage_between_them(tmp_path: Path) -> None:
    # Shares that a killed process has left go, those of a later checkpoint may be arriving.
    leftovers = [tmp_path / f"storage/run/checkpoints/.step-0000000{step}.tmp/shares" for step in (0, 2)]
    for leftover in leftovers:
        leftover.parent.mkdir(parents=True)
        leftover.touch()
    run_ranks(save_from, 3, tmp_path, tmp_path / "storage")
    torch.manual_seed(0)
    trained, run = build_model(**SPECIFICATION).state_dict(), tmp_path / "0/run"
    for folder in (run / "best-001", tmp_path / "storage/run/best-001", run / "checkpoints/step-00000001"):
        saved = complete(folder)
        assert saved.keys() == trained.keys()
        assert all(torch.equal(saved[name], trained[name]) for name in trained)
    load_model(run / "best-001")
    check_digests(run / "checkpoints/step-00000001")
    files = {file.name for file in (run / "checkpoints/step-00000001").iterdir()}
    assert {*files, CONTENTS} == {file.name for file in (tmp_path / "storage/run/checkpoints/step-00000001").iterdir()}
    found = [path for path in tmp_path.glob("*/run/**/*") if path.is_file() and "/." in str(path)]
    assert found == leftovers[1:]
    with pytest.raises(mp.ProcessRaisedException, match=r"writes to another disk .* set storage\.address"):
        run_ranks(save_from, 2, tmp_path / "without", None)


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
    sizes = [file.stat().st_size for file in max((tmp_path / "checkpoints").iterdir()).glob("*.safetensors")]
    assert len(sizes) == 4
    assert max(sizes) < 0.4 * sum(sizes)


def evaluate(rank: int, config: PipelineConfig, shards: Path, out: Path) -> None:
    trainer = texts.make_trainer(config, shards, out, Recorder() if rank == 0 else None)
    with patch("pipelines.training.trainer.EVALUATION_BATCH", 4):
        history = trainer.run()
    (out / f"history-{rank}.json").write_text(json.dumps(history))


@pytest.mark.integration
@pytest.mark.parametrize("images", [9, 1])
def test_shares_of_other_numbers_of_batches_are_evaluated_as_by_one(images: int, tmp_path: Path) -> None:
    """Of nine images one process has a batch, the other two; of one image the first process has none."""
    write_split(tmp_path / "train", 23, 0)
    write_split(tmp_path / "dev", images, 1)
    config = texts.make_config(texts.bert_text(texts.write_bert(tmp_path / "bert")), "training.epochs=0", SHARED)
    expected = texts.make_trainer(config, tmp_path, tmp_path / "one", Recorder()).run()
    (tmp_path / "two").mkdir()
    run_ranks(evaluate, 2, config, tmp_path, tmp_path / "two")
    for rank in (0, 1):
        assert json.loads((tmp_path / f"two/history-{rank}.json").read_text()) == list(expected)


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
    assert complete(checkpoint).keys() > alone.model.state_dict().keys()


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
