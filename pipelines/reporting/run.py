"""A pipeline run as its report sees it: the configuration, the stages' outputs, and their runs in MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipelines.config import PipelineConfig
from pipelines.reporting.recorded import RecordedRun, recorded_runs
from pipelines.runtime.stage import MANIFEST, StagePlan, check_outputs, manifest_in
from pipelines.tracking import TrackingError

_FILE = "report.html"


@dataclass(frozen=True)
class Run:
    """A run, finished or not: its stages' plans in their order, and the runs in MLflow of each stage's fingerprint.

    `outage` is the reason why MLflow did not answer; "" if it did.
    """

    config: PipelineConfig
    plans: Mapping[str, StagePlan]
    recorded: Mapping[str, Sequence[RecordedRun]]
    outage: str = ""

    @classmethod
    def read(cls, config: PipelineConfig, plans: Mapping[str, StagePlan]) -> Self:
        """Read the runs of every stage from MLflow; if it does not answer, the report says so and has none.

        Raises DigestError if a file that the report is made of was changed.
        """
        evaluated = plans["evaluate"]
        if evaluated.complete:
            config.mirror.pull(evaluated.directory)
            check_outputs(evaluated.directory)
        try:
            recorded = {
                name: recorded_runs(config.tracking_uri, name, plan.fingerprint) for name, plan in plans.items()
            }
            return cls(config, plans, recorded)
        except TrackingError as error:
            return cls(config, plans, {name: [] for name in plans}, str(error))

    def directory(self, stage: str) -> Path:
        """Return the output directory of a stage."""
        return self.plans[stage].directory

    def manifest(self, stage: str) -> dict[str, Any]:
        """Return the manifest of a stage; empty if it has not finished."""
        return read_manifest(self.directory(stage))

    def splits(self) -> dict[str, dict[str, Any]]:
        """Return the manifests of the extracted splits by their names."""
        found = {name: read_manifest(directory) for name, directory in self.plans["extract"].outputs.items()}
        return {name: manifest for name, manifest in found.items() if manifest}

    def logged(self, stage: str, metric: str) -> list[float]:
        """Return all values of a metric of a stage, in the order of its runs."""
        return [point.value for run in self.recorded[stage] for point in run.metrics.get(metric, ())]


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of an output; empty if there is none."""
    return manifest_in(directory) if (directory / MANIFEST).is_file() else {}


def report_path(work_dir: Path, identity: str) -> Path:
    """Return the path of a pipeline's report."""
    return work_dir / "pipelines" / identity[:16] / _FILE
