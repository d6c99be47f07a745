"""The reports of the first training process."""

import contextlib
from collections.abc import Mapping

from pipelines.tracking import LoggedData, RunHandle, Tracker
from pipelines.training.preemption import CheckpointRequests


class RunObserver:
    """Reports of the first worker: metrics go to MLflow, and processes that are told to end ask for a checkpoint."""

    def __init__(self, run: RunHandle, evaluated: LoggedData) -> None:
        self._tracker, self._evaluated = Tracker(run), evaluated
        self._monitoring = contextlib.ExitStack()
        self._monitoring.enter_context(self._tracker.system_metrics())
        self._requests = CheckpointRequests()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send metrics of a step to MLflow, in batches."""
        self._tracker.log_metrics(metrics, step)

    def log_model(self, name: str, metrics: Mapping[str, float], step: int) -> None:
        """Log the evaluation of a model of the run to MLflow."""
        self._tracker.log_model(name, metrics, step, self._evaluated)

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
