"""A pipeline run as its report sees it: the configuration, the stages' outputs, and what MLflow has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.reporting.recorded import RecordedRun, recorded_runs
from pipelines.runtime.stage import MANIFEST, StagePlan, manifest_in
from pipelines.tracking import TrackingError

_FILE = "report.html"


@dataclass(frozen=True)
class Run:
    """A run, whether it has come to its end or not.

    Attributes:
        config: its configuration.
        plans: what each stage would do now, by name and in their order.
        recorded: the runs in MLflow that have worked on each stage's output.
        outage: why MLflow could not be asked; "" where it was.
    """

    config: PipelineConfig
    plans: Mapping[str, StagePlan]
    recorded: Mapping[str, Sequence[RecordedRun]]
    outage: str = ""

    @classmethod
    def read(cls, config: PipelineConfig, plans: Mapping[str, StagePlan]) -> Run:
        """Ask MLflow about every stage; where it does not answer, the report says so and goes without."""
        if plans["evaluate"].complete:
            config.mirror.pull(plans["evaluate"].directory)
        try:
            return cls(config, plans, {name: recorded_runs(config, name, plans[name].fingerprint) for name in plans})
        except TrackingError as error:
            return cls(config, plans, {name: [] for name in plans}, str(error))

    def directory(self, stage: str) -> Path:
        """Where the output of a stage is or will be."""
        return self.plans[stage].directory

    def manifest(self, stage: str) -> dict[str, Any]:
        """The manifest of a stage; empty where it has not come to its end."""
        return read_manifest(self.directory(stage))

    def splits(self) -> dict[str, dict[str, Any]]:
        """The manifests of the splits that have been extracted, by their names."""
        found = {name: read_manifest(directory) for name, directory in self.plans["extract"].outputs.items()}
        return {name: manifest for name, manifest in found.items() if manifest}

    def logged(self, stage: str, metric: str) -> list[float]:
        """All values of a metric of a stage, in the order of its runs; none where MLflow has none."""
        return [value for run in self.recorded[stage] for value in run.values(metric)]


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of an output; empty where there is none."""
    return manifest_in(directory) if (directory / MANIFEST).is_file() else {}


def report_path(work_dir: Path, identity: str) -> Path:
    """Return the path of a pipeline's report."""
    return work_dir / "pipelines" / identity[:16] / _FILE
