"""One small finished pipeline for the scenarios of this folder.

A scenario is a test function that runs commands and looks at what comes out:

    @pytest.mark.nightly
    def test_a_bare_name_means_the_champion(pipeline: Pipeline) -> None:
        assert pipeline.run("promote", "--config", pipeline.config, "--model", f"{MODEL}/1").code == 0
        found = pipeline.run("search", "--model", MODEL, "a red ring")
        assert found.code == 0, found.printed
        assert "scenes/1" in found.out

`pipeline` is a copy (0.1 s) that the scenario may change; `finished` is the one of the session, to be read alone. Its
parts are properties of `Pipeline`: the work folder, the MLflow database, the registered model, the image gallery. A
file is one seam. Scenarios with this pipeline, and others of more than a minute, are marked `nightly`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from tests.integration.seams.pipeline import Pipeline, make_pipeline


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The pipeline of this session, made by the first process that asks for it (about a minute)."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all processes
    done = folder / "pipeline.done"
    with FileLock(folder / "pipeline.lock"):
        if not done.exists():
            make_pipeline(folder / "pipeline")
            done.touch()
    return Pipeline(folder / "pipeline")


@pytest.fixture
def pipeline(finished: Pipeline, tmp_path: Path) -> Pipeline:
    """A copy of it for one scenario."""
    return finished.copy(tmp_path / "pipeline")
