"""The settings of tracking, defaults filled in."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Experiment:
    """The MLflow server or database of runs, and the folder of a new experiment's artifacts, if not the server's.

    `work_dir` has run ids and what MLflow has not received yet. The names of runs begin with `run_name`.
    """

    name: str
    uri: str
    artifacts: str | None
    work_dir: Path
    run_name: str
