"""The function that every training process runs, and the reports of the first one to MLflow."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray.train
import torch
from ray.train.torch import get_device

from pipelines.config.training import TrainingSettings
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.runtime import ray_internals
from pipelines.runtime.stage import disk_errors
from pipelines.tracking import LoggedData, RunHandle, Tracker
from pipelines.training.preemption import CheckpointRequests
from pipelines.training.readers import open_splits
from pipelines.training.trainer import Trainer
from vse_core.digests import check_digests
from vse_core.evaluation.recall import chance_rsum
from vse_core.training.collapse import CollapseError
from vse_core.training.step import NonFiniteLossError

if TYPE_CHECKING:
    from pipelines.stages.train.folder import RunFolder


@dataclass(frozen=True)
class TrainingJob:
    """The work of every training process, pickled to other machines.

    `run` is the run in MLflow, `evaluated` what MLflow knows the evaluation split by.
    """

    settings: TrainingSettings
    train: SplitPaths
    evaluation: SplitPaths
    folder: RunFolder
    run: RunHandle
    evaluated: LoggedData


def train_worker(job: TrainingJob) -> dict[str, Any]:
    """Train as one of the processes; the first one's return value is the outcome of the run."""
    # Ray logs that it has received each epoch's metrics; they are in MLflow and in the final table.
    logging.getLogger().setLevel(logging.WARNING)
    settings, mirror = job.settings, job.settings.mirror
    # Ray gives a worker one thread whatever it was promised.
    torch.set_num_threads(max(1, int(settings.training.cpus_per_worker)))
    shuffle_shards = settings.training.shuffle_shards
    with open_splits(mirror, settings.feature, shuffle_shards, job.train, job.evaluation) as (train, evaluation):
        job.folder.recover()
        check_digests(job.folder.path)
        return _train(job, train, evaluation)


def _train(job: TrainingJob, train: SplitData, evaluation: SplitData) -> dict[str, Any]:
    observer = RunObserver(job.run, job.evaluated) if ray.train.get_context().get_world_rank() == 0 else None
    trainer = Trainer(
        job.settings,
        train,
        evaluation,
        job.settings.kind.load_caption_encoder(job.folder.path),
        job.folder.path,
        get_device(),
        observer,
        # A barrier for all processes; it also tells Ray, and whoever watches it, that the run advances.
        on_epoch=lambda metrics: ray.train.report({**metrics, "epoch": len(trainer.progress.history)}),
    )
    try:
        with disk_errors("train", job.folder.path):
            history = trainer.run()
    except (CollapseError, NonFiniteLossError) as error:
        # Every process meets it at the same step; a restart would meet it again, so it is an outcome, not a failure.
        return {"error": str(error)}
    finally:
        if observer is not None:
            observer.close()
    return {
        "history": list(history),
        "chance": chance_rsum(evaluation.reader.caption_counts.tolist()),
        "steps_per_epoch": trainer.steps_per_epoch,
    }


class RunObserver:
    """Reports of the first worker: metrics go to MLflow, and processes that are told to end ask for a checkpoint."""

    def __init__(self, run: RunHandle, evaluated: LoggedData) -> None:
        self._tracker, self._evaluated = Tracker(run), evaluated
        self._monitoring = contextlib.ExitStack()
        self._monitoring.enter_context(self._tracker.system_metrics())
        self._requests = CheckpointRequests(ray_internals.is_preempted)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send metrics of a step to MLflow, in batches."""
        self._tracker.log_metrics(metrics, step)

    def log_model(self, name: str, metrics: Mapping[str, float], step: int) -> None:
        """Log the evaluation of a model of the run to MLflow."""
        self._tracker.log_model(name, metrics, step, self._evaluated)

    def log_artifact(self, path: Path, folder: str) -> None:
        """Copy a file into a folder of the run's artifacts."""
        self._tracker.log_artifact(path, folder)

    def flush(self) -> None:
        """Deliver what a checkpoint now covers, or keep it on disk: a resumed run does not log it again."""
        self._tracker.detach(force=False)

    def wants_checkpoint(self) -> bool:
        """Return whether a process of the group ends now, and needs a checkpoint before."""
        return self._requests.is_wanted()

    def checkpoint_is_safe(self) -> None:
        """Let the process that asked for it end."""
        self._requests.answer()

    def close(self) -> None:
        """Deliver what is left."""
        self._monitoring.close()
        self._tracker.detach()
