"""A pipeline run as its report sees it: the configuration and the stages' outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import MANIFEST, StagePlan, check_outputs, manifest_in

_FILE = "report.html"


@dataclass(frozen=True)
class Run:
    """A run, finished or not, with its stages' plans in their order."""

    config: PipelineConfig
    plans: Mapping[str, StagePlan]

    @classmethod
    def read(cls, config: PipelineConfig, plans: Mapping[str, StagePlan]) -> Self:
        """Bring the evaluation to this machine; raises DigestError if a file that the report is made of was changed."""
        evaluated = plans["evaluate"]
        if evaluated.complete:
            config.mirror.pull(evaluated.directory)
            check_outputs(evaluated.directory)
        return cls(config, plans)

    def manifest(self, stage: str) -> dict[str, Any]:
        """Return the manifest of a stage; empty if it has not finished."""
        return read_manifest(self.plans[stage].directory)


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of an output; empty if there is none."""
    return manifest_in(directory) if (directory / MANIFEST).is_file() else {}


def report_path(work_dir: Path, identity: str) -> Path:
    """Return the path of a pipeline's report."""
    return work_dir / "pipelines" / identity[:16] / _FILE
