"""The settings of tracking, defaults filled in."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Experiment:
    """Where runs are recorded, and what is kept of them on this machine.

    `uri` is the MLflow server or database. A new experiment keeps `artifacts` there; None if the server decides.
    `work_dir` has run ids and what MLflow has not received yet. The names of runs begin with `run_name`.
    """

    name: str
    uri: str
    artifacts: str | None
    work_dir: Path
    run_name: str
