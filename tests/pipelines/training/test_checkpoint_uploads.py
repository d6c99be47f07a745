"""Checkpoints uploaded during training: in order, complete, and through an outage of the storage."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pipelines.runtime.stage import MANIFEST
from pipelines.training.checkpoint_uploads import CheckpointUploads
from preprocessing.storage.base import LocalStorage, StorageError
from preprocessing.storage.mirror import CONTENTS, Mirror


class Gate:
    """Holds or refuses what is uploaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.refuses = False
        self.uploaded: list[str] = []
        upload = LocalStorage.upload

        def gated(storage: LocalStorage, path: Path, name: str) -> None:
            self.reached.set()
            self.open.wait()
            if self.refuses:
                raise StorageError("the storage is away")
            self.uploaded.append(name)
            upload(storage, path, name)

        monkeypatch.setattr(LocalStorage, "upload", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "here", str(tmp_path / "storage"))


@pytest.fixture
def run(mirror: Mirror) -> Path:
    directory = mirror.root / "run"
    directory.mkdir(parents=True)
    (directory / "losses.jsonl").write_text("{}\n")
    return directory


def checkpoint(run: Path, name: str) -> Path:
    path = run / name
    path.mkdir(parents=True)
    (path / "weights").write_text(name)
    return path


def folders(mirror: Mirror, run: Path) -> set[str]:
    """The whole folders of the run on the storage."""
    return {name.removesuffix(f"/{CONTENTS}") for name in mirror.stored(run) if name.endswith(CONTENTS)}


def test_the_storage_gets_what_the_run_has_and_nothing_else(mirror: Mirror, run: Path, gate: Gate) -> None:
    uploads = CheckpointUploads(run, mirror)
    first, second = (checkpoint(run, f"checkpoints/step-{number:08d}") for number in (1, 2))
    best = checkpoint(run, "best-001")
    uploads.request([first], [first])
    uploads.wait()
    uploads.request([best, second], [best, second])
    uploads.wait()
    assert folders(mirror, run) == {"best-001", "checkpoints/step-00000002"}
    assert not any("step-00000001" in name for name in mirror.stored(run))
    order = [name for name in gate.uploaded if name.endswith(("jsonl", CONTENTS))]
    assert order[-3:] == ["run/losses.jsonl", f"run/best-001/{CONTENTS}", f"run/checkpoints/step-00000002/{CONTENTS}"]


def test_a_training_that_another_machine_has_finished_keeps_its_model(mirror: Mirror, run: Path, gate: Gate) -> None:
    """One that was cut off meanwhile has older checkpoints, and took those of the other one for superseded."""
    other = Mirror(mirror.root.parent / "other", str(mirror.address))
    finished = checkpoint(other.root / "run", "best-004")
    other.push_folder(finished)
    (other.root / "run" / MANIFEST).write_text("{}")
    other.push(other.root / "run" / MANIFEST)
    stale = checkpoint(run, "checkpoints/step-00000300")
    uploads = CheckpointUploads(run, mirror)
    uploads.request([stale], [stale])
    uploads.wait()
    assert folders(mirror, run) == {"best-004"}


def test_training_does_not_wait_and_one_state_waits(mirror: Mirror, run: Path, gate: Gate) -> None:
    uploads = CheckpointUploads(run, mirror)
    states = [checkpoint(run, f"checkpoints/step-{number:08d}") for number in range(4)]
    gate.open.clear()
    uploads.request(states[:1], states[:1])
    gate.reached.wait()
    for path in states[1:]:
        uploads.request([path], [path])  # would never return if it waited
    assert uploads.in_use() == {states[0], states[-1]}
    gate.open.set()
    uploads.wait()
    assert folders(mirror, run) == {"checkpoints/step-00000003"}
    assert sum(name.endswith(CONTENTS) for name in gate.uploaded) == 2


def test_what_is_written_while_it_is_copied_is_copied_again(mirror: Mirror, run: Path, gate: Gate) -> None:
    """The last step of an epoch is saved again after the evaluation."""
    uploads = CheckpointUploads(run, mirror)
    path = checkpoint(run, "checkpoints/step-00000001")
    (run / "losses.jsonl").unlink()  # what is copied first is the checkpoint
    gate.open.clear()
    uploads.request([path], [path])
    gate.reached.wait()
    uploads.request([path], [path])
    gate.open.set()
    uploads.wait()
    assert sum(name.endswith(CONTENTS) for name in gate.uploaded) == 2


def test_an_outage_costs_nothing_when_it_ends_in_time(mirror: Mirror, run: Path, gate: Gate) -> None:
    uploads = CheckpointUploads(run, mirror)
    first, second = (checkpoint(run, f"checkpoints/step-{number:08d}") for number in (1, 2))
    gate.refuses = True
    uploads.request([first], [first])
    while uploads.in_use():
        time.sleep(0.001)
    gate.refuses = False
    uploads.request([second], [second])
    uploads.wait()
    assert folders(mirror, run) == {"checkpoints/step-00000002"}


def test_the_last_state_must_arrive(mirror: Mirror, run: Path, gate: Gate) -> None:
    uploads = CheckpointUploads(run, mirror)
    path = checkpoint(run, "checkpoints/step-00000001")
    gate.refuses = True
    uploads.request([path], [path])
    with pytest.raises(StorageError, match="the storage is away"):
        uploads.wait()
    gate.refuses = False
    uploads.request([path], [])
    uploads.wait()
    assert folders(mirror, run) == {"checkpoints/step-00000001"}


def test_losses_that_are_added_to_meanwhile_arrive_as_they_were(
    mirror: Mirror, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 compares what has arrived with what was read first."""
    upload = LocalStorage.upload

    def compared(storage: LocalStorage, path: Path, name: str) -> None:
        before = path.read_bytes()
        with (run / "losses.jsonl").open("a") as losses:
            losses.write("{}\n")
        assert path.read_bytes() == before
        upload(storage, path, name)

    monkeypatch.setattr(LocalStorage, "upload", compared)
    uploads = CheckpointUploads(run, mirror)
    uploads.request([checkpoint(run, "checkpoints/step-00000001")], [])
    uploads.wait()
    assert mirror.stored(run)["losses.jsonl"].bytes == 3
