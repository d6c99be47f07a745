"""The driver's side of training: the group of workers, restarted while training makes progress."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig, TrainingFailedError, UserCallback
from ray.train.torch import TorchConfig, TorchTrainer

from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.errors import has_message, in_one_line, is_disk_error, keep_details, resource_message
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import NoRoomError, StageError
from pipelines.training import preemption
from pipelines.training.loss_log import last_loss
from pipelines.training.worker import TrainingJob, train_worker

log = logging.getLogger(__name__)

# A lost worker restarts the group from the last checkpoint; a run that loses this number without getting further has
# another problem.
_MAX_RESTARTS = 3

_TorchBackend: Any = TorchConfig().backend_cls


# Takes a training, the address of a cluster and the steps of all epochs; returns the outcome.
Fit = Callable[[TrainingJob, str | None, int], dict[str, Any]]


def fit(
    job: TrainingJob, ray_address: str | None, total_steps: int, callbacks: Sequence[UserCallback] = ()
) -> dict[str, Any]:
    """Run the workers on the cluster; returns the outcome of the first one. Ray calls the callbacks after every epoch.

    Ray restarts the group a few times after it has lost a worker; we restart Ray's run while training makes progress in
    between. Losing a machine while the group starts ends Ray's run as well.
    """
    ray_internals.configure_train(job.settings.training.collective_timeout)
    cluster.connect(ray_address)
    with _progress_bar(job.folder.path, total_steps):
        while True:
            before = job.folder.saved_step()
            try:
                return _ray_run(job, callbacks)
            except TrainingFailedError as error:
                if job.folder.saved_step() == before:
                    kind = NoRoomError if _lacked_room(error) else StageError
                    raise kind(f"train: the workers failed: {_reason(error)}") from error
                log.warning("train: the workers failed, and start again from the last checkpoint: %s", error)


def _ray_run(job: TrainingJob, callbacks: Sequence[UserCallback]) -> dict[str, Any]:
    training = job.settings.training
    trainer = TorchTrainer(
        lambda: train_worker(job),
        torch_config=GroupConfig(backend=training.backend, timeout_s=training.collective_timeout),
        scaling_config=ScalingConfig(
            num_workers=training.workers,
            use_gpu=training.gpus_per_worker > 0,
            resources_per_worker={"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker},
        ),
        run_config=RunConfig(
            # Ray resumes a run of the same name by itself; resuming is ours to do, so every start has a new name.
            name=f"{job.folder.path.name}-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}",
            storage_path=str(job.settings.mirror.root / "ray"),
            failure_config=FailureConfig(max_failures=_MAX_RESTARTS),
            logging_config=LoggingConfig(log_level="WARNING"),
            callbacks=list(callbacks),
        ),
    )
    outcome: dict[str, Any] = trainer.fit().return_value
    return outcome


def _lacked_room(error: TrainingFailedError) -> bool:
    failures = getattr(error, "worker_failures", {}).values()
    return any(isinstance(failure, NoRoomError) or is_disk_error(failure) for failure in failures)


def _reason(error: TrainingFailedError) -> str:
    """Return the error of a worker that the user can fix, if any; the errors of the others follow from it."""
    for failure in getattr(error, "worker_failures", {}).values():
        if has_message(failure):
            return str(failure).removeprefix("train: ")
        if (message := resource_message(failure)) is not None:
            return message
    return f"{in_one_line(error)}; {keep_details(error)}"


@contextmanager
def _progress_bar(directory: Path, total_steps: int) -> Iterator[None]:
    """Show the losses that the first worker writes, on the driver's terminal."""
    ended = threading.Event()

    def update() -> None:
        """Move the bar to the last step in the file, every second, and once more at the end."""
        found = last_loss(directory)
        with progress_bar("train", total_steps, "steps", int(found["step"]) if found else 0) as bar:
            while True:
                is_over = ended.wait(1.0)
                if found := last_loss(directory):
                    # It may lie before the last one: at the checkpoint that an interrupted run resumes from.
                    bar.set_postfix(loss=f"{found['loss']:.4g}", refresh=False)
                    bar.initial = min(bar.initial, found["step"])
                    bar.update(found["step"] - bar.n)
                if is_over:
                    return

    thread = threading.Thread(target=update, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass
class GroupConfig(TorchConfig):
    """Ray's process group for torch, in processes that are prepared first (see :func:`prepare_process`)."""

    @property
    def backend_cls(self) -> type["_Backend"]:
        """The class that Ray starts the group with."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: GroupConfig) -> None:
        """Prepare the processes, then let them meet."""
        worker_group.execute(prepare_process)
        super().on_start(worker_group, backend_config)


def prepare_process() -> None:
    """Watch for signals (in the main thread), and meet other processes at the address that Ray knows this one by."""
    preemption.watch()
    # gloo looks its own address up by the host name, which many systems resolve to 127.0.1.1.
    address = ray.util.get_node_ip_address()
    for interface, found in psutil.net_if_addrs().items():
        if any(each.family == socket.AF_INET and each.address == address for each in found):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
