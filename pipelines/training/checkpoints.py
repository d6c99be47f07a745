"""The checkpoints of a training run on disk: the newest to resume from, the best to use."""

import contextlib
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from pipelines.runtime.stage import StageError, disk_errors
from pipelines.training.checkpoint_uploads import CheckpointUploads
from preprocessing.storage.atomic import sync_directory
from preprocessing.storage.mirror import Mirror
from vse_core.digests import DigestError, check_digests, write_digests
from vse_core.distributed import rank
from vse_core.models.model import SPECIFICATION, WEIGHTS, Model
from vse_core.training.sharding import gathered
from vse_core.training.state import Progress, optimizer_tensors, read_progress, save_state

log = logging.getLogger(__name__)


class Checkpoints:
    """Writes the checkpoints of a run: complete directories appear by rename, and are copied to the storage, if any.

    The newest is ``checkpoints/step-NNNNNNNN``, the best model ``best-EEE``; the checkpoint before the newest stays
    until there is another, in case the newest is damaged. `write_sidecars` writes next to a model what it is used with.

    All processes of a run save, which gathers weights that they share; the first one writes.
    """

    def __init__(self, directory: Path, write_sidecars: Callable[[Path], None], mirror: Mirror) -> None:
        self.directory = directory
        self._write_sidecars = write_sidecars
        self.uploads = CheckpointUploads(directory, mirror)
        self._written: list[Path] = []
        # The last two checkpoints, each with what has to be kept for it: its best model, and itself.
        self._kept: dict[Path, tuple[Path, ...]] = {}

    def resume(self) -> Path | None:
        """Return the checkpoint to resume from, which is kept like one just written; None for a new run."""
        newest = newest_checkpoint(self.directory)
        if newest is not None:
            for path in sorted(self.directory.glob("checkpoints/step-*")):
                if path == newest or (path < newest and defect_of(path) is None):
                    self._keep(path, read_progress(path))
        return newest

    def save(self, step: int, model: Model, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the state after ``step`` global steps, then drop what it supersedes; StageError on a full disk."""
        weights, tensors = gathered(model.state_dict()), optimizer_tensors(optimizer)
        if rank():
            return
        (self.directory / "checkpoints").mkdir(exist_ok=True)
        path = self.directory / "checkpoints" / f"step-{step:08d}"
        with _written_atomically(path) as aside:
            self._write_model(model, weights, aside)
            save_state(tensors, progress, aside)
        kept = self._keep(path, progress)
        self.uploads.request(kept, [*self._written, path])
        self._written = []
        self._prune({*kept, *self.uploads.in_use()})

    def save_best(self, epoch: int, model: Model) -> None:
        """Write the model of a finished epoch (from 0) that was the best so far; to be followed by `save`."""
        weights = gathered(model.state_dict())
        if rank():
            return
        path = best_directory(self.directory, epoch)
        with _written_atomically(path) as aside:
            self._write_model(model, weights, aside)
        self._written.append(path)

    def wait(self) -> None:
        """Return when the last checkpoint alone is on the storage; StorageError if it cannot be."""
        self.uploads.wait()
        if self._kept:
            self._prune(set(itertools.chain.from_iterable(self._kept.values())))

    def _keep(self, path: Path, progress: Progress) -> list[Path]:
        """Keep a checkpoint and the one before it; returns the folders, a best model before what names it."""
        best = [] if progress.best_epoch is None else [best_directory(self.directory, progress.best_epoch)]
        before = [(other, folders) for other, folders in self._kept.items() if other != path]
        self._kept = dict([*before[-1:], (path, (*best, path))])
        folders = dict.fromkeys(itertools.chain.from_iterable(self._kept.values()))
        return [folder for folder in folders if folder.is_dir()]

    def _write_model(self, model: Model, weights: Mapping[str, Tensor], directory: Path) -> None:
        model.save(directory, weights)
        self._write_sidecars(directory)

    def _prune(self, kept: set[Path]) -> None:
        for pattern in ("checkpoints/step-*", "checkpoints/.step-*.tmp", "best-*", ".best-*.tmp"):
            for path in set(self.directory.glob(pattern)) - kept:
                shutil.rmtree(path)


def best_directory(directory: Path, epoch: int) -> Path:
    """Return where the model of an epoch (from 0) is kept while it is the best."""
    return directory / f"best-{epoch + 1:03d}"


def newest_checkpoint(directory: Path) -> Path | None:
    """Return the newest valid checkpoint, with a warning that names a newer damaged one; None before the first.

    Raises StageError if all checkpoints are damaged.
    """
    damaged: list[str] = []
    for path in sorted(directory.glob("checkpoints/step-*"), reverse=True):
        reason = defect_of(path)
        if reason is None:
            if damaged:
                log.warning("train: %s; training resumes from the checkpoint before it, %s", damaged[0], path)
            return path
        damaged.append(reason)
    if damaged:
        raise StageError(
            f"train: no checkpoint of this run is valid ({'; '.join(damaged)}): remove {directory / 'checkpoints'} to "
            "train from the beginning, or bring a valid one back from a copy"
        )
    return None


def defect_of(checkpoint: Path) -> str | None:
    """Return why a checkpoint is damaged, None if it is not."""
    try:
        check_digests(checkpoint)
    except DigestError as error:
        return error.reason
    return None


@contextlib.contextmanager
def _written_atomically(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes its real name when it is complete; StageError if the disk is full."""
    aside = path.with_name(f".{path.name}.tmp")
    for leftover in (aside, path):
        shutil.rmtree(leftover, ignore_errors=True)
    with disk_errors("train", path), contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        aside.mkdir()
        yield aside
        write_digests(aside, *{file.name for file in aside.iterdir()} - {WEIGHTS, SPECIFICATION})
        for file in aside.iterdir():
            with file.open("rb") as written:
                # The data must be on disk before the name is: a machine that loses power keeps what it was told of.
                os.fsync(written.fileno())
        sync_directory(aside)
        aside.rename(path)
        sync_directory(path.parent)
