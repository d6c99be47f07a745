"""What comes into use after a work folder was read, as while it is pruned."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.retention.work_folder import WorkFolder
from pipelines.runtime.outputs import RunOutputs, record_outputs, recording, write_outputs

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    """A work folder with two runs, of which the first has trained."""
    config = load_config(None, [f"work_dir={work_dir}"])
    for run, folder in (("first", "train/one"), ("second", "extract/train/two")):
        outputs = RunOutputs(at=LONG_AGO, folders=[f"pipelines/{run}", folder])
        write_outputs(config.mirror, work_dir / "pipelines" / run, outputs)
    return config


@pytest.mark.parametrize(
    ("user", "folder", "is_used"),
    [
        pytest.param("second", "train/one", True, id="a run that was known"),
        pytest.param("third", "train/one", True, id="a new run"),
        pytest.param("second", "train/other", False, id="another folder"),
    ],
)
def test_a_folder_that_comes_into_use_stays(config: PipelineConfig, user: str, folder: str, is_used: bool) -> None:
    found = WorkFolder(config)
    (run,) = (each for each in found.runs if each.name == "pipelines/first")
    folders = {"pipelines/first", "train/one"}
    assert not found.is_used_by_now(run, folders)
    with recording(config.work_dir / "pipelines" / user):
        record_outputs(config.mirror, config.work_dir / folder)
    assert found.is_used_by_now(run, folders) == is_used
