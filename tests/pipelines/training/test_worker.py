"""Errors of a worker: those that the user can fix become one message, others keep their traceback."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.runtime.stage import StageError
from pipelines.training import worker
from pipelines.training.run_folder import RunFolder
from pipelines.training.worker import TrainingJob
from preprocessing.storage.mirror import NO_MIRROR
from vse_core.training.collapse import CollapseError


class Failing:
    """A trainer whose run ends in an error."""

    error: Exception

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def run(self) -> None:
        raise self.error


def work(monkeypatch: pytest.MonkeyPatch, error: Exception, directory: Path) -> dict[str, Any]:
    """Train in the second of two processes, which has no tracker."""
    monkeypatch.setattr(Failing, "error", error, raising=False)
    monkeypatch.setattr("pipelines.training.worker.Trainer", Failing)
    monkeypatch.setattr(worker, "rank", lambda: 1)
    monkeypatch.setattr(worker, "load_caption_encoder", lambda path: None)
    folder = RunFolder(directory, NO_MIRROR)
    job = TrainingJob(SimpleNamespace(), None, None, folder, None, ("scenes dev", "0"))  # type: ignore[arg-type]
    return worker._train(job, None, None, None, None)  # type: ignore[arg-type]


def test_a_full_disk_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"cannot write to .*No space left.*make room") as raised:
        work(monkeypatch, OSError(errno.ENOSPC, "No space left on device"), tmp_path)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    "error", [ConnectionResetError(errno.ECONNRESET, "reset"), FileNotFoundError(errno.ENOENT, "")]
)
def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError) -> None:
    with pytest.raises(type(error)):
        work(monkeypatch, error, tmp_path)


def test_a_collapse_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert work(monkeypatch, CollapseError("all alike"), tmp_path) == {"error": "all alike"}


def test_the_chance_is_that_of_the_folds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 20 images in two folds a random ranking finds twice as many as of all."""
    finished = SimpleNamespace(run=lambda: (), steps_per_epoch=1, progress=SimpleNamespace(seconds=1.0))
    monkeypatch.setattr(worker, "Trainer", lambda *arguments, **options: finished)
    monkeypatch.setattr(worker, "rank", lambda: 1)
    monkeypatch.setattr(worker, "load_caption_encoder", lambda path: None)
    evaluation = SimpleNamespace(reader=SimpleNamespace(caption_counts=np.ones(20, dtype=int)))
    chances = []
    for folds in (1, 2):
        settings = SimpleNamespace(folds=folds)
        job = TrainingJob(settings, None, None, RunFolder(tmp_path, NO_MIRROR), None, ("", ""))  # type: ignore[arg-type]
        chances.append(worker._train(job, None, evaluation, None, None)["chance"])  # type: ignore[arg-type]
    assert chances == pytest.approx([2 * (5 + 25 + 50), 2 * (10 + 50 + 100)])


@pytest.mark.parametrize(
    ("precision", "device", "processor", "warns"),
    [
        ("bf16", "cpu", {"architecture": "x86_64", "avx512_bf16": False}, True),
        ("bf16", "cpu", {"architecture": "x86_64", "avx512_bf16": True}, False),
        ("bf16", "cpu", {"architecture": "aarch64"}, False),
        ("bf16", "cuda", {"architecture": "x86_64", "avx512_bf16": False}, False),
        ("float32", "cpu", {"architecture": "x86_64", "avx512_bf16": False}, False),
    ],
)
def test_a_precision_that_the_processor_emulates_is_told(
    precision: str,
    device: str,
    processor: dict[str, Any],
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    worker.warn_of_emulation(precision, torch.device(device))
    assert ("float32 is several times faster" in caplog.text) is warns
