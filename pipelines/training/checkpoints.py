"""The checkpoints of a training run on disk: the newest to resume from, the best to use."""

import contextlib
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from pipelines.runtime.stage import StageError, disk_errors
from pipelines.training.checkpoint_uploads import CheckpointUploads
from preprocessing.storage.atomic import sync_directory
from preprocessing.storage.base import StorageError
from preprocessing.storage.mirror import Mirror
from vse_core.digests import DigestError, check_digests, write_digests
from vse_core.distributed import host_group, rank, writers_tell
from vse_core.models.model import SPECIFICATION, WEIGHTS, Model
from vse_core.training.shares import mapped, save_shares
from vse_core.training.snapshot import Groups, HostCopies
from vse_core.training.state import Progress, optimizer_tensors, read_progress, save_progress, save_state

log = logging.getLogger(__name__)


class Checkpoints:
    """Writes the checkpoints of a run: complete directories appear by rename, and are copied to the storage, if any.

    The newest is ``checkpoints/step-NNNNNNNN``, the best model ``best-EEE``; the checkpoint before the newest stays
    until there is another, in case the newest is damaged. `write_sidecars` writes next to a model what it is used with.

    Training waits for a copy in memory alone; a thread writes it, one checkpoint at a time, with what remains of
    `minutes` between two. All processes of a run save. The first one writes, but if processes share the weights each
    writes its shares (:mod:`vse_core.training.shares`), and the first one, with files alone, makes them a checkpoint.
    """

    def __init__(
        self, directory: Path, write_sidecars: Callable[[Path, Progress], None], mirror: Mirror, minutes: float
    ) -> None:
        self.directory = directory
        self._write_sidecars = write_sidecars
        self._mirror = mirror
        self._seconds = 60 * minutes
        self._saved_at = time.monotonic()
        self.uploads = CheckpointUploads(directory, mirror)
        # The last two checkpoints, each with what has to be kept for it: its best model, and itself.
        self._kept: dict[Path, tuple[Path, ...]] = {}
        self._copies = HostCopies()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: Future[None] | None = None

    def resume(self) -> Path | None:
        """Return the checkpoint to resume from, which is kept like one just written; None for a new run.

        What a killed process has left half written goes.
        """
        for leftover in self.directory.glob("checkpoints/.step-*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        newest = newest_checkpoint(self.directory)
        if newest is not None:
            for path in sorted(self.directory.glob("checkpoints/step-*")):
                if path == newest or (path < newest and defect_of(path) is None):
                    self._keep(path, read_progress(path))
        return newest

    def is_due(self) -> bool:
        """Return whether the time between two checkpoints is over and none is being written; always if it is 0."""
        if not self._seconds:
            return True
        is_written = self._writing is None or self._writing.done()
        return is_written and time.monotonic() - self._saved_at >= self._seconds

    def save(
        self, step: int, model: Model, optimizer: torch.optim.Optimizer, progress: Progress, is_best: bool = False
    ) -> None:
        """Have the state after ``step`` global steps written, and what it supersedes dropped.

        `is_best`: the model is that of the best epoch so far, just finished. Raises StageError if the disk was full for
        the checkpoint before.
        """
        state = {"model": model.state_dict(), "optimizer": optimizer_tensors(optimizer)}
        is_shared = isinstance(model, FSDPModule)
        if rank() and not is_shared:
            return
        self._written()
        self._saved_at = time.monotonic()
        self._copies.take(state)
        shared = state["model"] | state["optimizer"] if is_shared else None
        if is_shared:
            host_group("files")  # made in the main thread, for the writer's
        path = self.directory / "checkpoints" / f"step-{step:08d}"
        epoch = progress.best_epoch if is_best else None
        best = None if epoch is None else best_directory(self.directory, epoch)
        self._writing = self._writer.submit(self._write, path, best, model, progress, shared)

    def wait(self) -> None:
        """Return when the last checkpoint alone is on the storage; StorageError or StageError if it cannot be."""
        self._written()
        self.uploads.wait()
        if self._kept:
            self._prune(set(itertools.chain.from_iterable(self._kept.values())))

    def finish(self) -> None:
        """Keep the last checkpoint and the best model alone when training has ended; errors as of :meth:`wait`."""
        self._written()
        last = list(self._kept.items())[-1:]
        self._kept = dict(last)
        self.uploads.request([folder for _, folders in last for folder in folders if folder.is_dir()], [])
        self.wait()

    def close(self) -> None:
        """Return when nothing is being written any more."""
        self._writer.shutdown()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(
        self, path: Path, best: Path | None, model: Model, progress: Progress, shared: Mapping[str, Tensor] | None
    ) -> None:
        """Write the copies, which are this process's shares of the tensors `shared`, or complete if that is None."""
        copied = self._copies.wait()
        path.parent.mkdir(exist_ok=True)
        if shared is not None and rank():
            with disk_errors("train", path):
                self._write_shares(copied, shared, _unfinished(path))
            return
        with _written_atomically(path) as aside:
            if shared is None:
                model.save(aside, copied["model"])
                save_state(copied["optimizer"], progress, aside)
            else:
                self._write_shares(copied, shared, aside)
                save_progress(progress, aside)
            self._write_sidecars(aside, progress)
            if best is not None:
                # It has its name before the checkpoint, which names it.
                scratch = TemporaryDirectory(dir=self.directory, prefix=".best-", suffix=".tmp")
                with scratch as folder, _written_atomically(best) as complete:
                    weights, file = copied["model"], Path(folder) / "weights"
                    model.save(complete, weights if shared is None else mapped(aside, weights, file))
                    self._write_sidecars(complete, progress)
        kept = self._keep(path, progress)
        self.uploads.request(kept, [*filter(None, (best, path))])
        self._prune({*kept, *self.uploads.in_use()})

    def _write_shares(self, copied: Groups, shared: Mapping[str, Tensor], folder: Path) -> None:
        """Write the shares of all processes to the folder of the first, by way of the storage from other disks."""
        names = save_shares(copied["model"] | copied["optimizer"], shared, folder)
        all_names = itertools.chain.from_iterable(writers_tell(names))
        missing = writers_tell([name for name in all_names if not (folder / name).is_file()])[0]
        if missing and self._mirror.address is None:
            raise StageError(
                f"train: a process writes to another disk than the first one, {folder.parent} there: set "
                "storage.address, or work_dir to a folder that all machines see"
            )
        failure, away = None, [folder / name for name in names if name in missing]
        try:
            self._mirror.push(*away)
        except StorageError as error:
            failure = str(error)
        for first in filter(None, writers_tell(failure)):
            raise StorageError(first)
        if away:
            shutil.rmtree(folder, ignore_errors=True)
        if missing and not rank():
            self._mirror.pull(folder, missing.__contains__)
            self._mirror.drop_folder(folder)

    def _keep(self, path: Path, progress: Progress) -> list[Path]:
        """Keep a checkpoint and the one before it; returns the folders, a best model before what names it."""
        best = [] if progress.best_epoch is None else [best_directory(self.directory, progress.best_epoch)]
        before = [(other, folders) for other, folders in self._kept.items() if other != path]
        self._kept = dict([*before[-1:], (path, (*best, path))])
        folders = dict.fromkeys(itertools.chain.from_iterable(self._kept.values()))
        return [folder for folder in folders if folder.is_dir()]

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


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


@contextlib.contextmanager
def _written_atomically(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes its real name when it is complete; StageError if the disk is full."""
    aside, before = _unfinished(path), _unfinished(path.with_name(f"{path.name}.before"))
    for leftover in (aside, before):
        shutil.rmtree(leftover, ignore_errors=True)
    with disk_errors("train", path), contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        aside.mkdir(exist_ok=True)
        yield aside
        write_digests(aside, *{file.name for file in aside.iterdir()} - {WEIGHTS, SPECIFICATION})
        for file in aside.iterdir():
            with file.open("rb") as written:
                # The data must be on disk before the name is: a machine that loses power keeps what it was told of.
                os.fsync(written.fileno())
        sync_directory(aside)
        if path.exists():  # of the same step, as when the last one of an epoch was saved before the evaluation
            path.rename(before)
        aside.rename(path)
        sync_directory(path.parent)
    shutil.rmtree(before, ignore_errors=True)
