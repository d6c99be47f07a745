"""The runs of a pipeline: opened once, found again after a kill, ended as KILLED if no process resumes them."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import logging
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pipelines.runtime.outputs import recording
from pipelines.schema.experiment import Experiment
from pipelines.tracking.client import TrackingError, connect, is_gone, named_outages, outages, unless_gone
from pipelines.tracking.mlflow_internals import TRAINING_EXPERIMENT, run_page
from pipelines.tracking.records import RunHandle
from pipelines.tracking.tracker import DESCRIPTION, ERROR, PENDING, Tracker, read_pending
from preprocessing.reading import parse_json, reason
from preprocessing.storage.address import is_s3
from preprocessing.storage.atomic import locked, write_json_atomic
from preprocessing.storage.redaction import SecretAddress
from vse_core.digests import sealed, unsealed

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
_LOCK = "alive.lock"
_EXPERIMENT = """Models of images and sentences in one space.

A pipeline is a run, and each of its stages that had work to do is one below it: extract, parse, train, evaluate,
register. Retrainings, searches and comparisons are runs as well.

- `train/...`: losses and speed by optimiser step; `system/...`: memory of the first worker.
- `dev/rsum`, `dev/i2t_r01`, ...: recalls of a split both ways, with 95 % intervals as `_low` and `_high`; RSUM is the
  sum of R@1, R@5 and R@10 both ways.
- Data, settings and code of a run: its parameters, and its tags `vse.data_fingerprint`, `vse.fingerprint`,
  `vse.seed`, `mlflow.source.git.commit`.
"""


class _Recorded(BaseModel):
    """The content of `run.json`: the address of the runs, and their ids by the stage."""

    uri: str
    experiment_id: str
    runs: dict[str, str]


class PipelineRuns:
    """The MLflow runs of one pipeline: the parent, and a child for each stage that works.

    Their ids are kept in `<work_dir>/pipelines/<fingerprint>/run.json`, so that a killed pipeline resumes its runs.
    The runs of another killed pipeline that no process has resumed are ended as KILLED; locks, which the kernel
    releases with their processes, show which ones are alive. As a context it holds the pipeline's own lock.

    The parent's run is by default named after the experiment and the fingerprint; it stands below the run `within`, if
    any. Raises TrackingError if MLflow does not answer, or the experiment has been deleted there.
    """

    def __init__(
        self, experiment: Experiment, fingerprint: str, name: str | None = None, within: str | None = None
    ) -> None:
        self._experiment = experiment
        self._file = _runs_file(experiment, fingerprint)
        self._client = connect(experiment.uri)
        self._alive = contextlib.ExitStack()
        self._lock = self._file.with_name(_LOCK)
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        self._alive.enter_context(locked(self._lock, fcntl.LOCK_SH))
        with named_outages(experiment.uri, "open a run"):
            self._tidy()
            self._experiment_id = _experiment(self._client, experiment)
            tags = {"vse.fingerprint": fingerprint, **code_version()}
            if within is not None:
                tags["mlflow.parentRunId"] = within
            self.parent = self._open("parent", name or f"{experiment.run_name}-{fingerprint[:8]}", tags)

    @property
    def folder(self) -> Path:
        """The folder of their ids."""
        return self._file.parent

    def child(self, stage: str) -> Tracker:
        """Open the run of a stage, the same one if it is resumed; TrackingError if MLflow does not answer."""
        with named_outages(self._experiment.uri, "open a run"):
            tags = {"mlflow.parentRunId": self.parent.run_id, "vse.stage": stage, **code_version()}
            return self._open(stage, stage, tags)

    def __enter__(self) -> PipelineRuns:
        self._alive.enter_context(recording(self._file.parent))
        return self

    def __exit__(self, *_error: object) -> None:
        """Release the lock: the runs have ended."""
        self._lock.unlink(missing_ok=True)
        self._alive.close()

    def _tidy(self) -> None:
        """Send what MLflow has not received of ended runs, and end the runs of killed pipelines."""
        for pending in sorted(_spool_folder(self._experiment).glob(f"*/*/{PENDING}")):
            kept = read_pending(pending)
            if kept and kept.status and SecretAddress(kept.run.uri) == self._experiment.uri:
                Tracker(kept.run).close(kept.status)
        for lock in sorted(self._file.parents[1].glob(f"*/{_LOCK}")):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                recorded = _recorded(lock.with_name(self._file.name))
                if recorded.get("uri") in (None, self._experiment.uri):
                    for run_id in recorded.get("runs", {}).values():
                        _end_abandoned(self._client, run_id)
                    lock.unlink()

    def _open(self, role: str, name: str, tags: dict[str, str]) -> Tracker:
        recorded = _recorded(self._file)
        if recorded.get("uri") != self._experiment.uri or recorded.get("experiment_id") != self._experiment_id:
            recorded = {"uri": self._experiment.uri, "experiment_id": self._experiment_id, "runs": {}}
        run_id = recorded["runs"].get(role)
        if run_id is None or not _reopened(self._client, run_id):
            tags = {**tags, "mlflow.user": getpass.getuser(), "mlflow.source.name": "pipelines"}
            run_id = self._client.create_run(self._experiment_id, tags=tags, run_name=name).info.run_id
            recorded["runs"][role] = run_id
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(self._file, sealed(recorded))
        spool = str(_spool_folder(self._experiment))
        tracker = Tracker(RunHandle(self._experiment.uri, self._experiment_id, run_id, spool))
        tracker.recall()
        return tracker


def end_children(uri: str, parent: str) -> None:
    """End as KILLED the runs below a run whose processes have been ended."""
    client = connect(uri)
    experiment = client.get_run(parent).info.experiment_id
    for run in client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'"):
        _end_abandoned(client, run.info.run_id)


def recorded_run_url(experiment: Experiment, fingerprint: str) -> str | None:
    """Return the page of a pipeline's parent run without asking MLflow, or None if there has been none."""
    recorded = _recorded(_runs_file(experiment, fingerprint))
    if recorded.get("uri") != experiment.uri:
        return None
    return run_page(recorded["uri"], recorded["experiment_id"], recorded["runs"]["parent"])


def _experiment(client: MlflowClient, wanted: Experiment) -> str:
    experiment = client.get_experiment_by_name(wanted.name)
    if experiment is None:
        location = _artifact_location(wanted)
        tags = {**TRAINING_EXPERIMENT, DESCRIPTION: _EXPERIMENT}
        try:
            return str(client.create_experiment(wanted.name, artifact_location=location, tags=tags))
        except outages():  # another process may have been faster
            experiment = client.get_experiment_by_name(wanted.name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        raise TrackingError(
            f"tracking.experiment {wanted.name!r} has been deleted in MLflow at {wanted.uri}: "
            "restore it there, or set another name"
        )
    if wanted.artifacts is not None and experiment.artifact_location != _artifact_location(wanted):
        raise TrackingError(
            f"tracking.artifacts: the experiment {wanted.name!r} keeps its artifacts in "
            f"{experiment.artifact_location}, which MLflow cannot change; name that, or a new tracking.experiment"
        )
    return str(experiment.experiment_id)


def _artifact_location(wanted: Experiment) -> str | None:
    """Return the folder of a new experiment's artifacts; None if the server decides."""
    if wanted.artifacts is not None:
        return wanted.artifacts if is_s3(wanted.artifacts) else Path(wanted.artifacts).as_uri()
    local = wanted.uri.startswith("sqlite:")
    return (wanted.work_dir / "mlartifacts").as_uri() if local else None


def _reopened(client: MlflowClient, run_id: str) -> bool:
    try:
        run = client.get_run(run_id)
    except outages() as error:
        if is_gone(error):
            return False
        raise
    if run.info.lifecycle_stage == "deleted":
        return False
    if ERROR in run.data.tags:
        client.delete_tag(run_id, ERROR)
    client.update_run(run_id, status="RUNNING")
    return True


def _end_abandoned(client: MlflowClient, run_id: str) -> None:
    with unless_gone():
        if client.get_run(run_id).info.status == "RUNNING":
            client.set_terminated(run_id, "KILLED")


def code_version() -> dict[str, str]:
    """Return tags naming the code: the package's version; in a checkout also the commit, and whether it was changed."""
    try:
        tags = {"vse.version": metadata.version("vse-pipeline")}
    except metadata.PackageNotFoundError:  # run from a working directory that was never installed
        tags = {"vse.version": "not installed"}
    if not (_ROOT / ".git").exists():
        return tags
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return tags
    commit, changed, _ = result.stdout.strip().partition("-dirty")
    return tags | {"mlflow.source.git.commit": commit, "vse.changed": str(bool(changed)).lower()}


def _spool_folder(experiment: Experiment) -> Path:
    return experiment.work_dir / "mlflow-unsent"


def _runs_file(experiment: Experiment, fingerprint: str) -> Path:
    return experiment.work_dir / "pipelines" / fingerprint[:16] / "run.json"


def _recorded(path: Path) -> dict[str, Any]:
    """Return the ids of a pipeline's runs; none if the record is missing or cannot be read."""
    if not path.is_file():
        return {}
    try:
        return _Recorded.model_validate(unsealed(parse_json(path.read_bytes()), path)).model_dump()
    except ValueError as error:
        log.warning("%s is damaged (%s): MLflow gets new runs in place of those it names", path, reason(error))
        return {}
