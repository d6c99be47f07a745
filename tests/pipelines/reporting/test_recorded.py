"""A run read back from MLflow has the values that were logged to it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.reporting.recorded import recorded_runs
from pipelines.tracking import PipelineRuns, TrackingError


def test_runs_of_a_stage_come_back_in_order_of_whatever_pipeline(work_dir: Path) -> None:
    for number, name in enumerate(("one", "two")):
        config = load_config(None, [f"work_dir={work_dir}", f"name={name}"])
        with PipelineRuns(config.experiment, str(number) * 64) as runs, runs.parent, runs.child("train") as tracker:
            tracker.set_tags({"vse.fingerprint": "abc"})
            for step in (20, 10, 30):
                tracker.log_metrics({"train/loss": number + step / 100}, step)
                time.sleep(0.002)  # MLflow tells milliseconds apart
    found = recorded_runs(config.tracking_uri, "train", "abc")
    assert [[point.value for point in run.metrics["train/loss"]] for run in found] == [[0.2, 0.1, 0.3], [1.2, 1.1, 1.3]]
    assert [point.step for point in found[0].metrics["train/loss"]] == [20, 10, 30]
    assert {run.status for run in found} == {"FINISHED"}
    assert all(run.seconds is not None and run.seconds >= 0 for run in found)
    assert "no such metric" not in found[0].metrics
    assert recorded_runs(config.tracking_uri, "train", "another") == []
    assert recorded_runs(config.tracking_uri, "evaluate", "abc") == []


def test_a_server_that_is_away_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    config = load_config(None, [f"work_dir={tmp_path}", "tracking.uri=http://127.0.0.1:9"])
    with pytest.raises(
        TrackingError, match=r"^tracking\.uri http://127\.0\.0\.1:9: cannot read the runs: .* Connection refused"
    ):
        recorded_runs(config.tracking_uri, "train", "abc")
