"""The function that every training process runs."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray.train
import torch
from ray.train.torch import get_device

from pipelines.config.training import TrainingSettings
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.runtime.logs import configure_worker
from pipelines.runtime.stage import disk_errors
from pipelines.tracking import LoggedData, RunHandle, Tracker
from pipelines.training.readers import open_splits
from pipelines.training.run_folder import RunFolder
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import load_caption_encoder
from vse_core.digests import check_digests
from vse_core.distributed import rank
from vse_core.evaluation.recall import chance_rsum
from vse_core.training.collapse import CollapseError
from vse_core.training.mixed_precision import emulates_bf16
from vse_core.training.step import NonFiniteLossError

log = logging.getLogger(__name__)


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
    """Train as one of Ray's processes; the first one's return value is the outcome of the run."""
    # Ray's report is a barrier for all processes; it also tells whoever watches Ray that the run advances.
    return train_as_process(job, get_device(), ray.train.report)


def train_as_process(
    job: TrainingJob, device: torch.device, report: Callable[[dict[str, float]], None]
) -> dict[str, Any]:
    """Train as one of the processes of a group, or alone; `report` gets the metrics of every epoch."""
    # Of Ray's own records warnings alone: it logs that it has received each epoch's metrics, which are in MLflow.
    configure_worker("train", job.run.run_id)
    settings, mirror = job.settings, job.settings.mirror
    # Ray gives a worker one thread whatever it was promised.
    torch.set_num_threads(max(1, int(settings.training.cpus_per_worker)))
    shuffle_shards = settings.training.shuffle_shards
    with open_splits(mirror, settings.feature, shuffle_shards, job.train, job.evaluation) as (train, evaluation):
        job.folder.recover()
        check_digests(job.folder.path)
        return _train(job, train, evaluation, device, report)


def _train(
    job: TrainingJob,
    train: SplitData,
    evaluation: SplitData,
    device: torch.device,
    report: Callable[[dict[str, float]], None],
) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        tracker = Tracker(job.run) if rank() == 0 else None
        if tracker is not None:
            stack.callback(tracker.detach)
            stack.enter_context(tracker.system_metrics())
            warn_of_emulation(job.settings.training.precision, device)
        trainer = Trainer(
            job.settings,
            train,
            evaluation,
            load_caption_encoder(job.folder.path),
            job.folder.path,
            device,
            tracker,
            on_epoch=lambda metrics: report({**metrics, "epoch": len(trainer.progress.history)}),
            evaluated=job.evaluated,
        )
        try:
            with disk_errors("train", job.folder.path):
                history = trainer.run()
        except (CollapseError, NonFiniteLossError) as error:
            # Every process meets it at the same step; a restart would meet it again, so it is an outcome, not a
            # failure.
            return {"error": str(error)}
    return {
        "history": list(history),
        "chance": chance_rsum(evaluation.reader.caption_counts.tolist(), job.settings.folds),
        "steps_per_epoch": trainer.steps_per_epoch,
        "seconds": round(trainer.progress.seconds, 1),
    }


def warn_of_emulation(precision: str, device: torch.device) -> None:
    """Say if training takes far longer than it has to, as with a configuration made on another machine."""
    if precision == "bf16" and device.type == "cpu" and emulates_bf16():
        log.warning(
            "train: training.precision is bf16, which this processor has no instructions for; float32 is several times "
            "faster here"
        )
