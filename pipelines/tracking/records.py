"""Records of what a run has logged: in memory, on disk, and on their way to MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

# Name of a data set and its digest, of 36 characters at most: what MLflow knows it by.
LoggedData = tuple[str, str]
Status = Literal["FINISHED", "FAILED", "KILLED"]
# Name, value, milliseconds since 1970, and step.
LoggedMetric = tuple[str, float, int, int]


@dataclass(frozen=True)
class RunHandle:
    """The address of a run, in plain strings for other processes; `spool` is the folder of what cannot be delivered."""

    uri: str
    experiment_id: str
    run_id: str
    spool: str


class LoggedModel(BaseModel):
    """A model that a run has made, such as an epoch's, and its metrics on data."""

    name: str
    metrics: list[LoggedMetric]
    data: LoggedData


class Pending(BaseModel):
    """What MLflow has not received of a run, and how the run ended, if it has."""

    run: RunHandle
    params: dict[str, str] = {}
    tags: dict[str, str] = {}
    metrics: list[LoggedMetric] = []
    models: list[LoggedModel] = []
    status: Status | None = None

    def put_before(self, earlier: Pending) -> None:
        """Add what an earlier process has logged."""
        self.params = {**earlier.params, **self.params}
        self.tags = {**earlier.tags, **self.tags}
        self.metrics = [*earlier.metrics, *self.metrics]
        self.models = [*earlier.models, *self.models]
