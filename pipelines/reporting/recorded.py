"""The recorded runs of stages in MLflow: their times, status, parameters and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from pipelines.tracking.client import connect, named_outages

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


@dataclass(frozen=True)
class Point:
    """One value of a metric; `at` is in milliseconds since 1970."""

    step: int
    value: float
    at: int


@dataclass(frozen=True)
class RecordedRun:
    """A run in MLflow: `status` is "FINISHED", "FAILED", "KILLED" or "RUNNING"; times are in ms since 1970.

    `ended` is None while it is running; metrics are in the order in which they were logged.
    """

    run_id: str
    status: str
    began: int
    ended: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, Sequence[Point]]

    @property
    def seconds(self) -> float | None:
        """Seconds from its first start to its end, pauses between starts included; None while it is running."""
        return None if self.ended is None else (self.ended - self.began) / 1000


def recorded_runs(uri: str, stage: str, fingerprint: str) -> list[RecordedRun]:
    """Return the runs of a stage, of any pipeline, for this fingerprint, the first one first."""
    with named_outages(uri, "read the runs"):
        client = connect(uri)
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        wanted = f"tags.`vse.stage` = '{stage}' and tags.`vse.fingerprint` = '{fingerprint}'"
        runs = client.search_runs(experiments, wanted, order_by=["start_time ASC"]) if experiments else []
        return [_recorded(client, run) for run in runs]


def _recorded(client: MlflowClient, run: Run) -> RecordedRun:
    metrics = {}
    for name in sorted(run.data.metrics):
        history = client.get_metric_history(run.info.run_id, name)
        points = (Point(each.step, each.value, each.timestamp) for each in history)
        metrics[name] = sorted(points, key=attrgetter("at", "step"))
    info = run.info
    times = info.start_time, info.end_time
    return RecordedRun(info.run_id, info.status, *times, dict(run.data.params), dict(run.data.tags), metrics)
