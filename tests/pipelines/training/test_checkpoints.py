"""Checkpoints are complete or not there; the newest valid one is resumed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError

from pipelines.runtime.stage import StageError
from pipelines.training.checkpoints import Checkpoints, newest_checkpoint
from preprocessing.storage.mirror import NO_MIRROR
from vse_core.digests import write_digests
from vse_core.models import build_model
from vse_core.training.state import Progress, read_progress

SPECIFICATION: dict[str, Any] = {
    "feature_dim": 4,
    "vocabulary_size": 9,
    "embed_dim": 8,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 4},
}


def checkpoints_in(directory: Path) -> Checkpoints:
    return Checkpoints(directory, lambda model, progress: None, NO_MIRROR, minutes=0)


def write(directory: Path, *files: str) -> Path:
    directory.mkdir(parents=True)
    for name in files:
        (directory / name).write_text(f"{name} of {directory.name}")
    write_digests(directory)
    return directory


def damage(file: Path) -> None:
    file.write_text(file.read_text().swapcase())


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(**SPECIFICATION)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, model, optimizer, Progress(step=1))
    checkpoints.wait()
    full = Mock(side_effect=SafetensorError("I/O error: No space left on device (os error 28)"))
    monkeypatch.setattr("vse_core.training.state.save_file", full)
    checkpoints.save(2, model, optimizer, Progress(step=2))
    with pytest.raises(StageError, match=r"cannot write to .*step-00000002 .*No space left.* make room there"):
        checkpoints.wait()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    monkeypatch.undo()
    checkpoints.save(3, model, optimizer, Progress(step=3))
    checkpoints.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000001", "step-00000003"]
    checkpoints.save(4, model, optimizer, Progress(step=4))
    checkpoints.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000004"]


def test_a_checkpoint_stays_until_the_one_that_replaces_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of an epoch is saved again after the evaluation."""
    model = build_model(**SPECIFICATION)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, model, optimizer, Progress(step=1))
    checkpoints.wait()
    with monkeypatch.context() as patch:
        patch.setattr("vse_core.training.state.save_file", Mock(side_effect=KeyboardInterrupt))
        checkpoints.save(1, model, optimizer, Progress(epoch=1))
        with pytest.raises(KeyboardInterrupt):
            checkpoints.wait()
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert read_progress(newest).step == 1
    checkpoints.save(1, model, optimizer, Progress(epoch=1))
    checkpoints.wait()
    assert read_progress(newest).epoch == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_resumed_run_keeps_the_checkpoint_before_the_newest(tmp_path: Path) -> None:
    model = build_model(**SPECIFICATION)
    optimizer = torch.optim.AdamW(model.parameters())
    first = checkpoints_in(tmp_path)
    for step in (1, 2, 3):
        first.save(step, model, optimizer, Progress(step=step))
    first.close()
    resumed = checkpoints_in(tmp_path)
    assert str(resumed.resume()).endswith("step-00000003")
    resumed.wait()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000002", "step-00000003"]
    resumed.save(4, model, optimizer, Progress(step=4))
    resumed.wait()
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
