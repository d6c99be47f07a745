"""A run resumed on another machine: which checkpoints of which machine it starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from pipelines.runtime.stage import StageError
from pipelines.stages.train.folder import RunFolder
from pipelines.training.checkpoints import Checkpoints, newest_checkpoint
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import NO_MIRROR
from vse_core.digests import write_digests
from vse_core.models import build_model
from vse_core.training.state import Progress

SPECIFICATION: dict[str, Any] = {
    "feature_dim": 4,
    "vocabulary_size": 9,
    "embed_dim": 8,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 4},
}


def checkpoints_in(directory: Path) -> Checkpoints:
    return Checkpoints(directory, lambda model: None, NO_MIRROR)


@pytest.fixture
def machines(tmp_path: Path) -> list[Mirror]:
    return [Mirror(tmp_path / name, str(tmp_path / "storage")) for name in ("first", "second")]


def run(machine: Mirror) -> Path:
    return machine.root / "train" / "run"


def write(directory: Path, *files: str) -> Path:
    directory.mkdir(parents=True)
    for name in files:
        (directory / name).write_text(f"{name} of {directory.name}")
    write_digests(directory)
    return directory


def damage(file: Path) -> None:
    file.write_text(file.read_text().swapcase())


def test_the_newest_whole_checkpoint_is_adopted(machines: list[Mirror]) -> None:
    first, second = machines
    first.push_folder(write(run(first) / "best-001", "weights"))
    first.push_folder(write(run(first) / "checkpoints" / "step-00000004", "weights", "state"))
    newest = write(run(first) / "checkpoints" / "step-00000008", "weights", "state")
    first.push(newest / "weights")  # and is killed
    (run(first) / "losses.jsonl").write_text("{}\n")
    first.push(run(first) / "losses.jsonl")
    RunFolder(run(second), second).recover()
    found = newest_checkpoint(run(second))
    assert found is not None
    assert found.name == "step-00000004"
    assert (found / "state").read_text() == "state of step-00000004"
    assert (run(second) / "best-001" / "weights").read_text() == "weights of best-001"
    assert (run(second) / "losses.jsonl").read_text() == "{}\n"


def test_all_machines_start_from_the_same(machines: list[Mirror]) -> None:
    """A checkpoint of one machine alone is offered before the start, or else given up."""
    first, second = machines
    first.push_folder(write(run(first) / "checkpoints" / "step-00000004", "weights"))
    write(run(second) / "checkpoints" / "step-00000008", "weights")
    RunFolder(run(second), second).recover()
    assert str(newest_checkpoint(run(second))).endswith("step-00000004")
    write(run(first) / "checkpoints" / "step-00000012", "weights")
    RunFolder(run(first), first).publish()
    for machine in machines:
        RunFolder(run(machine), machine).recover()
        assert str(newest_checkpoint(run(machine))).endswith("step-00000012")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(**SPECIFICATION)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, model, optimizer, Progress(step=1))

    def full(*_arguments: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("vse_core.training.state.save_file", full)
    with pytest.raises(StageError, match=r"cannot write to .*step-00000002 .*No space left.* make room there"):
        checkpoints.save(2, model, optimizer, Progress(step=2))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    monkeypatch.undo()
    checkpoints.save(3, model, optimizer, Progress(step=3))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000001", "step-00000003"]
    checkpoints.save(4, model, optimizer, Progress(step=4))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000004"]


def test_a_resumed_run_keeps_the_checkpoint_before_the_newest(tmp_path: Path) -> None:
    model = build_model(**SPECIFICATION)
    optimizer = torch.optim.AdamW(model.parameters())
    first = checkpoints_in(tmp_path)
    for step in (1, 2, 3):
        first.save(step, model, optimizer, Progress(step=step))
    resumed = checkpoints_in(tmp_path)
    assert str(resumed.resume()).endswith("step-00000003")
    resumed.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000002", "step-00000003"]
    resumed.save(4, model, optimizer, Progress(step=4))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000004"]


def test_a_damaged_newest_checkpoint_makes_way_for_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, newest = (write(tmp_path / f"checkpoints/step-0000000{step}", "weights", "state") for step in (4, 8))
    damage(newest / "state")
    assert newest_checkpoint(tmp_path) == before
    (warning,) = caplog.messages
    assert f"{newest / 'state'} is damaged" in warning
    assert f"resumes from the checkpoint before it, {before}" in warning
    (before / "weights").unlink()
    with pytest.raises(StageError, match=r"no checkpoint of this run is valid .* remove .*checkpoints to train from"):
        newest_checkpoint(tmp_path)


def test_a_damaged_copy_of_a_checkpoint_is_replaced_from_the_storage(machines: list[Mirror]) -> None:
    first, _ = machines
    newest = write(run(first) / "checkpoints" / "step-00000008", "weights")
    first.push_folder(newest)
    damage(newest / "weights")
    RunFolder(run(first), first).publish()
    RunFolder(run(first), first).recover()
    assert newest_checkpoint(run(first)) == newest
    assert (newest / "weights").read_text() == "weights of step-00000008"


def test_a_checkpoint_that_is_damaged_on_the_storage_makes_way_for_the_one_before(
    machines: list[Mirror], tmp_path: Path
) -> None:
    first = machines[0]
    for step in (4, 8):
        first.push_folder(write(run(first) / "checkpoints" / f"step-0000000{step}", "weights"))
    damage(tmp_path / "storage/train/run/checkpoints/step-00000008/weights")
    for machine in machines:
        damage(run(first) / "checkpoints/step-00000008/weights")  # of the first alone
        RunFolder(run(machine), machine).recover()
        assert str(newest_checkpoint(run(machine))).endswith("step-00000004")
