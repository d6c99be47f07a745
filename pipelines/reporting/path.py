"""Where reports are."""

from __future__ import annotations

from pathlib import Path

from pipelines.config import PipelineConfig

_FILE = "report.html"


def report_path(config: PipelineConfig, identity: str) -> Path:
    """Where the report of a pipeline is.

    Args:
        config: the configuration.
        identity: fingerprint of the pipeline.
    """
    return config.work_dir / "pipelines" / identity[:16] / _FILE
