"""Runs in MLflow: one parent for a pipeline, one child for each stage, and a tracker that outlives an outage.

What a tracker cannot deliver it keeps in a spool folder, says so, and delivers later; the work that is being tracked
never fails because of it. MLflow itself is imported only when a run is opened: that takes seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from preprocessing.shards.storage import locked, write_json_atomic
from preprocessing.storage import is_s3

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient

    from pipelines.config import PipelineConfig

log = logging.getLogger(__name__)

# MLflow's limits: entries of one kind in a request, and characters of a parameter.
_METRICS_A_REQUEST, _OTHERS_A_REQUEST, _PARAM_CHARACTERS = 1000, 100, 6000
_FLUSH_METRICS, _FLUSH_SECONDS = 500, 10.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 15.0, 600.0
_METRIC_NAME = re.compile(r"[\w\-. :/]+")
_PENDING, _LOCK = "pending.json", "alive.lock"

# A server that is away must cost seconds, not the minutes of MLflow's own patience; what fails is sent again later.
_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

Status = Literal["FINISHED", "FAILED", "KILLED"]


class TrackingError(Exception):
    """A run cannot be opened in MLflow: the message says why and what to change."""


@dataclass(frozen=True)
class RunHandle:
    """What another process needs to log to a run; plain strings, so that it travels in a training configuration.

    Attributes:
        uri: address of the MLflow server or database.
        experiment_id: MLflow's number of the experiment.
        run_id: MLflow's number of the run.
        spool: folder for what cannot be delivered.
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

    Args:
        handle: the run.
    """

    def __init__(self, handle: RunHandle) -> None:
        self.handle = handle
        self._client = _client(handle.uri)
        self._spools = Path(handle.spool) / handle.run_id
        self._spool = self._spools / f"{socket.gethostname()}-{os.getpid()}"
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._metrics: list[tuple[str, float, int, int]] = []  # name, value, milliseconds since 1970, step
        self._flushed_at = time.monotonic()
        self._retry_at = 0.0
        self._wait = _FIRST_WAIT_SECONDS

    @property
    def run_id(self) -> str:
        """MLflow's number of the run."""
        return self.handle.run_id

    def run_url(self) -> str:
        """Return the address of the run's page."""
        return _page(self.handle.uri, self.handle.experiment_id, self.run_id)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Log parameters; nested mappings become dotted names. Those that the run has already stay as they are."""
        self._params.update(_flattened(params))
        self.flush()

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags; old values are replaced."""
        self._tags.update({name: str(value) for name, value in tags.items()})
        self.flush()

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log metrics at a step.

        Raises:
            ValueError: MLflow does not allow a name; "dev/i2t_r1" it does, "dev/i2t_r@1" it does not.
        """
        for name, value in metrics.items():
            if not _METRIC_NAME.fullmatch(name):
                raise ValueError(f"metric name {name!r}: MLflow allows letters, digits and _ - . : / alone")
            self._metrics.append((name, float(value), int(time.time() * 1000), step))
        if len(self._metrics) >= _FLUSH_METRICS or time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file into the run, into `folder` of its artifacts."""
        shutil.copyfile(path, self._spooled(f"{folder}/{path.name}" if folder else path.name))
        self.flush()

    def log_figure(self, figure: Figure, name: str) -> None:
        """Store a matplotlib figure under a name that ends in .png, .svg or .pdf: "plots/loss.png"."""
        figure.savefig(self._spooled(name), bbox_inches="tight")
        self.flush()

    def log_dict(self, content: Any, name: str) -> None:
        """Store JSON under a name: "set_aside.json"."""
        write_json_atomic(self._spooled(name), content)
        self.flush()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the active run of MLflow's module-level functions, for logging models; its status is left alone."""
        import mlflow

        self.flush()
        mlflow.set_tracking_uri(self.handle.uri)
        mlflow.set_registry_uri(self.handle.uri)
        mlflow.start_run(run_id=self.run_id)
        try:
            yield
        finally:
            mlflow.end_run("RUNNING")

    def flush(self, force: bool = False) -> bool:
        """Send what is waiting; return whether nothing is left.

        Args:
            force: try also where MLflow has failed to answer only a moment ago.
        """
        self._flushed_at = time.monotonic()
        if self._flushed_at < self._retry_at and not force:
            return False
        try:
            self._send()
        except _outages() as error:
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

        Args:
            force: try also where MLflow has failed to answer only a moment ago.
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
        except _outages() as error:
            log.warning("MLflow at %s does not take the end of a run (%s)", *self._why(error))
        self._keep(status)
        log.warning("not everything reached MLflow: run any pipeline here to send what is kept in %s", self._spools)

    def _keep(self, status: Status | None) -> None:
        """Write to disk what could not be sent, and how the run ended where it has."""
        self._spool.mkdir(parents=True, exist_ok=True)
        kept = {"params": self._params, "tags": self._tags, "metrics": self._metrics}
        write_json_atomic(self._spool / _PENDING, {**kept, "status": status, "run": asdict(self.handle)})

    def recall(self) -> None:
        """Take up what earlier processes could not send to this run; the next flush sends it."""
        for spool in sorted(self._spools.glob("*")):
            if (spool / _PENDING).is_file():
                pending = json.loads((spool / _PENDING).read_text(encoding="utf-8"))
                self._params = {**pending["params"], **self._params}
                self._tags = {**pending["tags"], **self._tags}
                self._metrics = [*(tuple(metric) for metric in pending["metrics"]), *self._metrics]
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
            self._tags["error"] = f"{type(error).__name__}: {error}"[: _PARAM_CHARACTERS // 2]
            self.close("FAILED")
        else:
            self.close("KILLED")

    def _spooled(self, name: str) -> Path:
        path = self._spool / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _why(self, error: BaseException) -> tuple[str, str]:
        return self.handle.uri, str(error).partition("\n")[0][:200]

    def _send(self) -> None:
        """Send everything, forgetting each thing once it has arrived; what arrives twice does no harm."""
        from mlflow.entities import Metric, Param, RunTag

        if self._params:
            known = self._client.get_run(self.run_id).data.params
            entries = [Param(name, value) for name, value in self._params.items() if name not in known]
            for start in range(0, len(entries), _OTHERS_A_REQUEST):
                self._client.log_batch(self.run_id, params=entries[start : start + _OTHERS_A_REQUEST])
            self._params = {}
        if self._tags:
            self._client.log_batch(self.run_id, tags=[RunTag(name, value) for name, value in self._tags.items()])
            self._tags = {}
        while self._metrics:
            batch = self._metrics[:_METRICS_A_REQUEST]
            self._client.log_batch(self.run_id, metrics=[Metric(*metric) for metric in batch])
            del self._metrics[: len(batch)]
        artifacts = self._spool / "artifacts"
        for path in _files(artifacts):
            folder = path.parent.relative_to(artifacts).as_posix()
            self._client.log_artifact(self.run_id, str(path), None if folder == "." else folder)
            path.unlink()


class PipelineRuns:
    """The MLflow runs of one pipeline: the parent, and a child for each stage that works.

    Their numbers are kept in `<work_dir>/pipelines/<fingerprint>/run.json`, so that a pipeline that was killed goes on
    in the runs it had. Those of another pipeline that was killed, and is not going on, are ended as KILLED. Which ones
    go on is told by locks, which the kernel lets go of with their processes. As a context it holds the pipeline's own.

    Args:
        config: the pipeline's configuration.
        fingerprint: identity of the pipeline: of the outputs of all its stages.
        name: of the parent's run; by default the preset's.
        within: MLflow's number of a run that the parent stands below.

    Raises:
        TrackingError: MLflow does not answer, or the experiment has been deleted there.
    """

    def __init__(
        self, config: PipelineConfig, fingerprint: str, name: str | None = None, within: str | None = None
    ) -> None:
        self._config = config
        self._file = _runs_file(config, fingerprint)
        self._client = _client(config.tracking_uri)
        self._alive = contextlib.ExitStack()
        self._lock = self._file.with_name(_LOCK)
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        self._alive.enter_context(locked(self._lock, fcntl.LOCK_SH))
        with self._errors_named():
            self._tidy()
            self._experiment_id = _experiment(self._client, config)
            tags = {"vse.fingerprint": fingerprint, **code_version()}
            if within is not None:
                tags["mlflow.parentRunId"] = within
            self.parent = self._open("parent", name or f"{config.preset}-{fingerprint[:8]}", tags)

    def child(self, stage: str) -> Tracker:
        """Open the run of a stage, the one it had where it has been begun before.

        Raises:
            TrackingError: MLflow does not answer.
        """
        with self._errors_named():
            tags = {"mlflow.parentRunId": self.parent.run_id, "vse.stage": stage, **code_version()}
            return self._open(stage, stage, tags)

    def __enter__(self) -> PipelineRuns:
        return self

    def __exit__(self, *_error: object) -> None:
        """The runs have ended: there is nothing that the next start would have to look at."""
        self._lock.unlink(missing_ok=True)
        self._alive.close()

    def _tidy(self) -> None:
        """Send what ended runs could not send, and end the runs of pipelines that were killed."""
        for pending in sorted(_spool_folder(self._config).glob(f"*/*/{_PENDING}")):
            kept = json.loads(pending.read_text(encoding="utf-8"))
            if kept["status"] is not None and kept["run"]["uri"] == self._config.tracking_uri:
                Tracker(RunHandle(**kept["run"])).close(kept["status"])
        for lock in sorted(self._file.parents[1].glob(f"*/{_LOCK}")):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                recorded = _recorded(lock.with_name(self._file.name))
                if recorded.get("uri") in (None, self._config.tracking_uri):
                    for run_id in recorded.get("runs", {}).values():
                        _end_abandoned(self._client, run_id)
                    lock.unlink()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except _outages() as error:
            raise TrackingError(f"tracking.uri {self._config.tracking_uri}: cannot open a run: {error}") from error

    def _open(self, role: str, name: str, tags: dict[str, str]) -> Tracker:
        recorded = _recorded(self._file)
        if recorded.get("uri") != self._config.tracking_uri or recorded.get("experiment_id") != self._experiment_id:
            recorded = {"uri": self._config.tracking_uri, "experiment_id": self._experiment_id, "runs": {}}
        run_id = recorded["runs"].get(role)
        if run_id is None or not _reopened(self._client, run_id):
            tags = {**tags, "mlflow.user": getpass.getuser(), "mlflow.source.name": "pipelines"}
            run_id = self._client.create_run(self._experiment_id, tags=tags, run_name=name).info.run_id
            recorded["runs"][role] = run_id
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(self._file, recorded)
        spool = str(_spool_folder(self._config))
        tracker = Tracker(RunHandle(self._config.tracking_uri, self._experiment_id, run_id, spool))
        tracker.recall()
        return tracker


def end_children(uri: str, parent: str) -> None:
    """End as KILLED the runs below a run whose processes were ended by whoever started them."""
    client = _client(uri)
    experiment = client.get_run(parent).info.experiment_id
    for run in client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'"):
        _end_abandoned(client, run.info.run_id)


def recorded_run_url(config: PipelineConfig, fingerprint: str) -> str | None:
    """Return the page of a pipeline's parent run without asking MLflow, or None where there has been none."""
    recorded = _recorded(_runs_file(config, fingerprint))
    if recorded.get("uri") != config.tracking_uri:
        return None
    return _page(recorded["uri"], recorded["experiment_id"], recorded["runs"]["parent"])


def code_version() -> dict[str, str]:
    """Return tags naming the code: the package's version; in a checkout also the commit, and whether it was changed."""
    tags = {"vse.version": _package_version()}
    root = Path(__file__).resolve().parents[1]
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "HEAD")
        if commit:
            tags["mlflow.source.git.commit"] = commit
            tags["vse.changed"] = str(bool(_git(root, "status", "--porcelain", "--untracked-files=no"))).lower()
    return tags


def _package_version() -> str:
    try:
        return metadata.version("vse-pipeline")
    except metadata.PackageNotFoundError:  # run from a working directory that was never installed
        return "not installed"


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def _client(uri: str) -> MlflowClient:
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # The making of a new database is not news.
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(uri, registry_uri=uri)


def _outages() -> tuple[type[Exception], ...]:
    """Return what is raised when MLflow or its artifacts' S3 does not answer or refuses, and by sockets and files."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from mlflow.exceptions import MlflowException

    return (MlflowException, OSError, Boto3Error, BotoCoreError, ClientError)


def _experiment(client: MlflowClient, config: PipelineConfig) -> str:
    """Return the number of the experiment, making it where there is none."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(config.experiment)
    if experiment is None:
        location = _artifact_location(config)
        tags = {"mlflow.experimentKind": "custom_model_development"}
        try:
            return str(client.create_experiment(config.experiment, artifact_location=location, tags=tags))
        except MlflowException:  # another process may have been faster
            experiment = client.get_experiment_by_name(config.experiment)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        raise TrackingError(
            f"tracking.experiment {config.experiment!r} has been deleted in MLflow at {config.tracking_uri}: "
            "restore it there, or set another name"
        )
    if config.tracking.artifacts is not None and experiment.artifact_location != _artifact_location(config):
        raise TrackingError(
            f"tracking.artifacts: the experiment {config.experiment!r} keeps its artifacts in "
            f"{experiment.artifact_location}, which MLflow cannot change; name that, or a new tracking.experiment"
        )
    return str(experiment.experiment_id)


def _artifact_location(config: PipelineConfig) -> str | None:
    """Where a new experiment keeps its artifacts; None where the server decides."""
    address = config.tracking.artifacts
    if address is not None:
        return address if is_s3(address) else Path(address).as_uri()
    local = config.tracking_uri.startswith("sqlite:")
    return (config.work_dir / "mlartifacts").as_uri() if local else None


def _reopened(client: MlflowClient, run_id: str) -> bool:
    """Set a run to RUNNING again; False where it is gone."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
    if run.info.lifecycle_stage == "deleted":
        return False
    client.update_run(run_id, status="RUNNING")
    return True


def _end_abandoned(client: MlflowClient, run_id: str) -> None:
    """End a run as KILLED, unless it has ended or is gone."""
    from mlflow.exceptions import MlflowException

    try:
        if client.get_run(run_id).info.status == "RUNNING":
            client.set_terminated(run_id, "KILLED")
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _spool_folder(config: PipelineConfig) -> Path:
    return config.work_dir / "mlflow-unsent"


def _runs_file(config: PipelineConfig, fingerprint: str) -> Path:
    return config.work_dir / "pipelines" / fingerprint[:16] / "run.json"


def _recorded(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    recorded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return recorded


def _page(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page; for a database, the page of an MLflow server started over it on its port."""
    server = uri.rstrip("/") if uri.startswith(("http://", "https://")) else "http://127.0.0.1:5000"
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _flattened(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)[:_PARAM_CHARACTERS]
