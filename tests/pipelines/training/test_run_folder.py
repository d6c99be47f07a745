"""A run resumed on another machine: which checkpoints of which machine it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.training.checkpoints import newest_checkpoint
from pipelines.training.run_folder import RunFolder
from preprocessing.storage.mirror import Mirror
from tests.pipelines.training.test_checkpoints import damage, write


@pytest.fixture
def machines(tmp_path: Path) -> list[Mirror]:
    return [Mirror(tmp_path / name, str(tmp_path / "storage")) for name in ("first", "second")]


def run(machine: Mirror) -> Path:
    return machine.root / "train" / "run"


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
