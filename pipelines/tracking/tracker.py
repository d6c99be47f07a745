"""Logging to one run of MLflow, from any process; keeps on disk what MLflow does not accept."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from pipelines.tracking.client import connect, outages, reason_of, require_database
from pipelines.tracking.mlflow_internals import monitored, run_page
from pipelines.tracking.records import LoggedData, LoggedMetric, LoggedModel, Pending, RunHandle, Status
from preprocessing.reading import parse_json, reason
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.redaction import SecretAddress, redacted, redacted_values
from vse_core.digests import sealed, unsealed

log = logging.getLogger(__name__)

PENDING, _ARTIFACTS = "pending.json", "artifacts"
# The tag under which MLflow keeps descriptions of runs and experiments.
DESCRIPTION = "mlflow.note.content"
# That of a failed run's reason.
ERROR = "error"

# MLflow's limits.
_PARAM_CHARACTERS, _NAME_CHARACTERS = 6000, 250
_FLUSH_METRICS, _FLUSH_SECONDS = 500, 10.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 15.0, 600.0
_METRIC_NAME, _NOT_IN_NAMES = re.compile(r"[\w\-. :/]+"), re.compile(r"[^\w\-. :/]")


class Tracker:
    """Logs to one run of MLflow.

    Metrics are sent in batches: with the first call ten seconds after the last batch, with 500 waiting, and at `flush`.
    While MLflow does not answer everything is kept, and delivery is tried again at growing intervals. The process that
    opened the run uses its tracker as a context, which ends the run on leaving: FINISHED, FAILED after an exception,
    KILLED after an interrupt. Other processes make their own from the handle and call `detach` when they are done.
    """

    def __init__(self, handle: RunHandle) -> None:
        self.handle = handle
        require_database(handle.uri)
        self._client = connect(handle.uri)
        self._spools = Path(handle.spool) / handle.run_id
        self._spool = self._spools / f"{socket.gethostname()}-{os.getpid()}"
        self._pending = Pending(run=handle)
        self._flushed_at = time.monotonic()
        self._retry_at = 0.0
        self._wait = _FIRST_WAIT_SECONDS

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.handle.run_id

    def run_url(self) -> str:
        """Return the address of the run's page."""
        return run_page(self.handle.uri, self.handle.experiment_id, self.run_id)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log parameters; nested mappings become dotted names. Those that the run has already stay as they are."""
        self._pending.params.update(_flattened(params))
        self.flush()

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags; old values are replaced."""
        self._pending.tags.update({name: redacted(str(value)) for name, value in tags.items()})
        self.flush()

    def describe(self, text: str) -> None:
        """Set the run's description, in Markdown."""
        self.set_tags({DESCRIPTION: text})

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log metrics at a step; ValueError if MLflow does not allow a name, such as "dev/i2t_r@1"."""
        self._pending.metrics += _checked(metrics, step)
        if len(self._pending.metrics) >= _FLUSH_METRICS or time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def log_model(self, name: str, metrics: Mapping[str, float], step: int, data: LoggedData) -> None:
        """Log a model that the run has made, such as an epoch's, and metrics of it on data; the weights stay here.

        MLflow's pages rank an experiment's models by them; the same name is the same model. Raises as `log_metrics`.
        """
        self._pending.models.append(LoggedModel(name=name, metrics=_checked(metrics, step), data=data))
        self.flush()

    def link_model(self, model_id: str) -> None:
        """Show a model that another run has logged among what this run has made; left out if MLflow is away."""
        from mlflow.entities import LoggedModelOutput

        with suppress(*outages()):
            self._client.log_outputs(self.run_id, [LoggedModelOutput(model_id, 0)])

    def system_metrics(self) -> AbstractContextManager[None]:
        """Log the load of this machine, every ten seconds: ``system/cpu_utilization_percentage`` and others."""
        return monitored(self.run_id, SecretAddress(self.handle.uri).reveal())

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file into the run, into `folder` of its artifacts."""
        shutil.copyfile(path, self._spooled(f"{folder}/{path.name}" if folder else path.name))
        self.flush()

    def log_dict(self, content: Any, name: str) -> None:
        """Store JSON under a name: "skipped.json"."""
        write_json_atomic(self._spooled(name), redacted_values(content))
        self.flush()

    def flush(self, force: bool = False) -> bool:
        """Send what is waiting, with `force` even soon after an outage; return whether nothing is left."""
        from pipelines.tracking.delivery import send

        self._flushed_at = time.monotonic()
        if self._flushed_at < self._retry_at and not force:
            return False
        try:
            send(self._client, self._pending, self._spool / _ARTIFACTS)
        except outages() as error:
            if self._retry_at == 0.0:
                log.warning("MLflow at %s does not take what is logged (%s): kept, and sent later", *self._why(error))
            self._retry_at = time.monotonic() + self._wait
            self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
            return False
        if self._retry_at:
            log.warning("MLflow at %s answers again; everything that was kept has been sent", self.handle.uri)
        self._retry_at, self._wait = 0.0, _FIRST_WAIT_SECONDS
        return True

    def detach(self, force: bool = True) -> bool:
        """Send what is waiting as `flush`, or keep it on disk for whoever ends the run; return whether all was sent."""
        sent = self.flush(force)
        if sent:
            shutil.rmtree(self._spool, ignore_errors=True)
        else:
            self._keep()
        return sent

    def close(self, status: Status = "FINISHED") -> None:
        """End the run; what cannot be sent even now, its end too, stays on disk and is sent at the next start."""
        self.recall()
        try:
            if self.detach():
                self._client.set_terminated(self.run_id, status)
                return
        except outages() as error:
            log.warning("MLflow at %s does not take the end of a run (%s)", *self._why(error))
        self._pending.status = status
        if self._keep():
            log.warning("not everything reached MLflow: run any pipeline here to send what is kept in %s", self._spools)

    def _keep(self) -> bool:
        """Write what could not be sent to disk; return whether there was room, as another error comes first."""
        try:
            self._spool.mkdir(parents=True, exist_ok=True)
            write_json_atomic(self._spool / PENDING, sealed(self._pending.model_dump()))
        except OSError as error:
            log.error("what MLflow has not received cannot be kept in %s either: %s", self._spool, error)
            return False
        return True

    def recall(self) -> None:
        """Load what earlier processes could not send to this run; the next flush sends it."""
        for spool in sorted(self._spools.glob("*")):
            earlier = read_pending(spool / PENDING)
            if earlier is not None:
                self._pending.put_before(earlier)
            if spool != self._spool:
                for path in sorted((spool / _ARTIFACTS).rglob("*")):
                    if path.is_file():
                        path.replace(self._spooled(path.relative_to(spool / _ARTIFACTS).as_posix()))
                shutil.rmtree(spool)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.close("FINISHED")
        elif isinstance(error, Exception):
            self._pending.tags[ERROR] = redacted(f"{type(error).__name__}: {error}")[: _PARAM_CHARACTERS // 2]
            self.close("FAILED")
        else:
            self.close("KILLED")

    def _spooled(self, name: str) -> Path:
        path = self._spool / _ARTIFACTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _why(self, error: Exception) -> tuple[str, str]:
        return self.handle.uri, reason_of(error)[:200]


def read_pending(path: Path) -> Pending | None:
    """Return what MLflow has not received; None if nothing is kept. A damaged file is renamed."""
    if not path.is_file():
        return None
    try:
        return Pending.model_validate(unsealed(parse_json(path.read_bytes(), any_text=True), path))
    except ValueError as error:
        kept = path.replace(path.with_suffix(".damaged"))
        log.error("%s is damaged (%s): MLflow does not get what it held; it is kept as %s", path, reason(error), kept)
        return None


def _checked(metrics: Mapping[str, float], step: int) -> list[LoggedMetric]:
    """Return metrics with the time and their step; ValueError for a name that MLflow does not allow."""
    for name in metrics:
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(f"metric name {name!r}: MLflow allows letters, digits and _ - . : / alone")
    now = int(time.time() * 1000)
    return [(name, float(value), now, step) for name, value in metrics.items()]


def _flattened(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield parameters by names in dots, in which a sign that MLflow does not allow is replaced."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield _NOT_IN_NAMES.sub("_", f"{prefix}{name}")[:_NAME_CHARACTERS], redacted(str(value))[:_PARAM_CHARACTERS]
