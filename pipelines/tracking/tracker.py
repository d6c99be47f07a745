"""Logging to one run of MLflow, from any process; keeps on disk what MLflow does not accept."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from pipelines.tracking.client import connect, outages, page, reason_of
from pipelines.tracking.mlflow_internals import DATASET_CONTEXT, monitored
from preprocessing.reading import parse_json, reason
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.redaction import SecretAddress, redacted, redacted_values
from vse_core.digests import sealed, unsealed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

PENDING = "pending.json"
# The tag under which MLflow keeps descriptions of runs and experiments.
DESCRIPTION = "mlflow.note.content"

# Name of a data set and its digest, of 36 characters at most: what MLflow knows it by.
LoggedData = tuple[str, str]

# MLflow's limits: entries of one kind in a request, characters of a parameter.
_METRICS_A_REQUEST, _OTHERS_A_REQUEST, _PARAM_CHARACTERS = 1000, 100, 6000
_FLUSH_METRICS, _FLUSH_SECONDS = 500, 10.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 15.0, 600.0
_METRIC_NAME = re.compile(r"[\w\-. :/]+")

Status = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class RunHandle:
    """The address of a run for other processes; plain strings, so that it travels in a training configuration.

    `spool` is the folder for what cannot be delivered.
    """

    uri: str
    experiment_id: str
    run_id: str
    spool: str


class Tracker:
    """Logs to one run of MLflow.

    Metrics are sent in batches: with the first call ten seconds after the last batch, with 500 waiting, and at `flush`.
    While MLflow does not answer everything is kept, and delivery is tried again at growing intervals. The process that
    opened the run uses its tracker as a context, which ends the run on leaving: FINISHED, FAILED after an exception,
    KILLED after an interrupt. Other processes make their own from the handle and call `detach` when they are done.
    """

    def __init__(self, handle: RunHandle) -> None:
        self.handle = handle
        self._client = connect(handle.uri)
        self._spools = Path(handle.spool) / handle.run_id
        self._spool = self._spools / f"{socket.gethostname()}-{os.getpid()}"
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._inputs: list[dict[str, str]] = []
        self._metrics: list[tuple[str, float, int, int]] = []  # name, value, milliseconds since 1970, step
        self._models: list[dict[str, Any]] = []
        self._flushed_at = time.monotonic()
        self._retry_at = 0.0
        self._wait = _FIRST_WAIT_SECONDS

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.handle.run_id

    def run_url(self) -> str:
        """Return the address of the run's page."""
        return page(self.handle.uri, self.handle.experiment_id, self.run_id)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log parameters; nested mappings become dotted names. Those that the run has already stay as they are."""
        self._params.update(_flattened(params))
        self.flush()

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags; old values are replaced."""
        self._tags.update({name: redacted(str(value)) for name, value in tags.items()})
        self.flush()

    def describe(self, text: str) -> None:
        """Set the run's description, in Markdown."""
        self.set_tags({DESCRIPTION: text})

    def log_dataset(
        self,
        data: LoggedData,
        kind: str,
        source: Mapping[str, str],
        profile: Mapping[str, float],
        context: str,
    ) -> None:
        """Log data that the run reads.

        `kind` is the source's format, the context what it is read for: "training", "validation", "evaluation".
        """
        dataset = {"name": data[0], "digest": data[1], "source_type": kind}
        texts = {"source": json.dumps(redacted_values(source)), "profile": json.dumps(dict(profile))}
        self._inputs.append({**dataset, **texts, "context": context})
        self.flush()

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log metrics at a step.

        Raises ValueError if MLflow does not allow a name; "dev/i2t_r01" it does, "dev/i2t_r@1" it does not.
        """
        self._metrics += _checked(metrics, step)
        if len(self._metrics) >= _FLUSH_METRICS or time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def log_model(self, name: str, metrics: Mapping[str, float], step: int, data: LoggedData) -> None:
        """Log a model that the run has made, such as an epoch's, and metrics of it on data; the weights stay here.

        MLflow's pages rank the models of an experiment by them. The same name is the same model.

        Raises ValueError if MLflow does not allow the name of a metric.
        """
        self._models.append({"name": name, "metrics": _checked(metrics, step), "data": data})
        self.flush()

    @contextmanager
    def system_metrics(self) -> Iterator[None]:
        """Log the load of this machine, every ten seconds: ``system/cpu_utilization_percentage`` and others."""
        with monitored(self.run_id, SecretAddress(self.handle.uri).reveal()):
            yield

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file into the run, into `folder` of its artifacts."""
        shutil.copyfile(path, self._spooled(f"{folder}/{path.name}" if folder else path.name))
        self.flush()

    def log_figure(self, figure: Figure, name: str) -> None:
        """Store a matplotlib figure under a name that ends in .png, .svg or .pdf: "plots/loss.png"."""
        figure.savefig(self._spooled(name), bbox_inches="tight")
        self.flush()

    def log_dict(self, content: Any, name: str) -> None:
        """Store JSON under a name: "skipped.json"."""
        write_json_atomic(self._spooled(name), redacted_values(content))
        self.flush()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the active run of MLflow's module-level functions, for logging models; its status is left alone."""
        import mlflow

        self.flush()
        address = SecretAddress(self.handle.uri).reveal()
        mlflow.set_tracking_uri(address)
        mlflow.set_registry_uri(address)
        mlflow.start_run(run_id=self.run_id)
        try:
            yield
        finally:
            mlflow.end_run("RUNNING")

    def flush(self, force: bool = False) -> bool:
        """Send what is waiting; return whether nothing is left.

        With `force` it is tried also where MLflow has failed to answer only a moment ago.
        """
        self._flushed_at = time.monotonic()
        if self._flushed_at < self._retry_at and not force:
            return False
        try:
            self._send()
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
        """Send what is waiting, or keep it on disk for the process that ends the run; return whether all was sent.

        With `force` it is tried also where MLflow has failed to answer only a moment ago.
        """
        sent = self.flush(force)
        if sent:
            shutil.rmtree(self._spool, ignore_errors=True)
        else:
            self._keep(None)
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
        if self._keep(status):
            log.warning("not everything reached MLflow: run any pipeline here to send what is kept in %s", self._spools)

    def _keep(self, status: Status | None) -> bool:
        """Write to disk what could not be sent, and how the run ended where it has; return whether there was room.

        A disk that is full is not the error to report: whatever filled it, or ended the run, comes first.
        """
        kept = {"params": self._params, "tags": self._tags, "inputs": self._inputs, "metrics": self._metrics}
        kept["models"] = self._models
        try:
            self._spool.mkdir(parents=True, exist_ok=True)
            write_json_atomic(self._spool / PENDING, sealed({**kept, "status": status, "run": asdict(self.handle)}))
        except OSError as error:
            log.error("what MLflow has not received cannot be kept in %s either: %s", self._spool, error)
            return False
        return True

    def recall(self) -> None:
        """Load what earlier processes could not send to this run; the next flush sends it."""
        for spool in sorted(self._spools.glob("*")):
            pending = read_pending(spool / PENDING)
            if pending is not None:
                self._params = {**pending["params"], **self._params}
                self._tags = {**pending["tags"], **self._tags}
                self._inputs = [*pending["inputs"], *self._inputs]
                self._metrics = [*pending["metrics"], *self._metrics]
                self._models = [*pending["models"], *self._models]
            if spool != self._spool:
                for path in _files(spool / "artifacts"):
                    path.replace(self._spooled(path.relative_to(spool / "artifacts").as_posix()))
                shutil.rmtree(spool)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close("FINISHED")
        elif isinstance(error, Exception):
            self._tags["error"] = redacted(f"{type(error).__name__}: {error}")[: _PARAM_CHARACTERS // 2]
            self.close("FAILED")
        else:
            self.close("KILLED")

    def _spooled(self, name: str) -> Path:
        path = self._spool / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _why(self, error: Exception) -> tuple[str, str]:
        return self.handle.uri, reason_of(error)[:200]

    def _send(self) -> None:
        """Send everything, forgetting each thing once it has arrived; what arrives twice does no harm."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        if self._params:
            known = self._client.get_run(self.run_id).data.params
            entries = [Param(name, value) for name, value in self._params.items() if name not in known]
            for start in range(0, len(entries), _OTHERS_A_REQUEST):
                self._client.log_batch(self.run_id, params=entries[start : start + _OTHERS_A_REQUEST])
            self._params = {}
        if self._tags:
            self._client.log_batch(self.run_id, tags=[RunTag(name, value) for name, value in self._tags.items()])
            self._tags = {}
        if self._inputs:
            inputs = [
                DatasetInput(
                    Dataset(**{name: value for name, value in each.items() if name != "context"}),
                    [InputTag(DATASET_CONTEXT, each["context"])],
                )
                for each in self._inputs
            ]
            self._client.log_inputs(self.run_id, inputs)
            self._inputs = []
        while self._metrics:
            batch = self._metrics[:_METRICS_A_REQUEST]
            self._client.log_batch(self.run_id, metrics=[Metric(*metric) for metric in batch])
            del self._metrics[: len(batch)]
        while self._models:
            self._send_model(**self._models[0])
            del self._models[0]
        artifacts = self._spool / "artifacts"
        for path in _files(artifacts):
            folder = path.parent.relative_to(artifacts).as_posix()
            self._client.log_artifact(self.run_id, str(path), None if folder == "." else folder)
            path.unlink()

    def _send_model(self, name: str, metrics: list[tuple[str, float, int, int]], data: LoggedData) -> None:
        from mlflow.entities import LoggedModelOutput, Metric

        experiment, run = self.handle.experiment_id, self.run_id
        known = self._client.search_logged_models([experiment], f"source_run_id = '{run}' AND name = '{name}'")
        if known:
            model = known[0]
        else:
            model = self._client.create_logged_model(experiment, name, run)
            self._client.log_outputs(run, [LoggedModelOutput(model.model_id, metrics[0][3])])
        of_data = {"model_id": model.model_id, "dataset_name": data[0], "dataset_digest": data[1], "run_id": run}
        self._client.log_batch(run, metrics=[Metric(*metric, **of_data) for metric in metrics])
        self._client.finalize_logged_model(model.model_id, "READY")


class _Pending(BaseModel):
    """What MLflow has not received of a run, and how that ended where it has."""

    params: dict[str, str]
    tags: dict[str, str]
    inputs: list[dict[str, str]] = []
    metrics: list[tuple[str, float, int, int]]
    models: list[dict[str, Any]] = []
    status: Status | None
    run: RunHandle


def read_pending(path: Path) -> dict[str, Any] | None:
    """Return what MLflow has not received; None where there is nothing, or a damaged file, which gets another name."""
    if not path.is_file():
        return None
    try:
        return _Pending.model_validate(unsealed(parse_json(path.read_bytes(), any_text=True), path)).model_dump()
    except ValueError as error:
        kept = path.replace(path.with_suffix(".damaged"))
        log.error("%s is damaged (%s): MLflow does not get what it held; it is kept as %s", path, reason(error), kept)
        return None


def _checked(metrics: Mapping[str, float], step: int) -> list[tuple[str, float, int, int]]:
    """Return metrics with the time and their step; ValueError for a name that MLflow does not allow."""
    for name in metrics:
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(f"metric name {name!r}: MLflow allows letters, digits and _ - . : / alone")
    now = int(time.time() * 1000)
    return [(name, float(value), now, step) for name, value in metrics.items()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _flattened(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", redacted(str(value))[:_PARAM_CHARACTERS]
