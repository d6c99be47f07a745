"""Stages in order, with stages that only count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.config.training import EvaluationConfig
from pipelines.runtime import cli
from pipelines.runtime.stage import Plans, StageDir, StageError, StagePlan, StageReport
from pipelines.stages import runner
from pipelines.stages.runner import STAGES
from pipelines.stages.stage import Stage
from pipelines.tracking import Tracker

WITHOUT_PARSE = [name for name in tuple(STAGES) if name != "parse"]


HEADLINES = {
    "rsum": 240.0,
    **{f"{way}_r{k:02}": share for way in ("i2t", "t2i") for k, share in ((1, 20.0), (5, 40.0), (10, 60.0))},
}


class CountingStage:
    """A stage whose output is its manifest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0
        self.failure: BaseException | None = None

    def _directory(self, config: PipelineConfig) -> StageDir:
        return StageDir(config.work_dir, self.name, str(config.seed) * 64)

    def plan(self, config: PipelineConfig, upstream: Plans) -> StagePlan:
        stage = self._directory(config)
        done = int(stage.is_complete())
        outputs = {part: stage.path / part for part in ("gallery", "pictures")}
        return StagePlan(self.name, stage.fingerprint, stage.path, 1, done, "parts", "a lot", outputs)

    def run(self, config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
        self.runs += 1
        if self.failure is not None:
            raise self.failure
        tracker.log_metrics({"x": 1.0})
        stage = self._directory(config)
        metrics = {**HEADLINES, "rsum_low": 230.0, "i2t_ties": 3.0}
        stage.complete({"summary": f"result of {self.name}", "metrics": metrics}, [])
        return StageReport(self.name, stage.path, f"result of {self.name}")


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, CountingStage]:
    stages = {name: CountingStage(name) for name in STAGES}
    for name, stage in STAGES.items():
        monkeypatch.setitem(STAGES, name, replace(stage, plan=stages[name].plan))
    monkeypatch.setattr(Stage, "run", lambda stage, *arguments: stages[stage.name].run(*arguments))
    monkeypatch.setattr(cli, "_LOG_COLUMNS", 400)  # whatever the length of pytest's paths
    return stages


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}", "dataset.images={train: 20, dev: 4}"])


Rows = Callable[[], list[list[str]]]


@pytest.fixture
def rows(capsys: pytest.CaptureFixture[str]) -> Rows:
    """The cells of the table that has just been printed."""

    def read() -> list[list[str]]:
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
        return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]

    return read


def statuses(config: PipelineConfig) -> dict[str, str]:
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    return {run.info.run_name: run.info.status for run in client.search_runs([experiment.experiment_id])}


def test_captions_are_parsed_where_something_reads_the_graphs(
    config: PipelineConfig, stages: dict[str, CountingStage], rows: Rows
) -> None:
    reading = config.model_copy(update={"evaluation": EvaluationConfig(protocols=("retrieval", "attack"))})
    runner.run_stages(reading, tuple(STAGES))
    assert [row[:2] for row in rows()] == [[name, "done"] for name in (*STAGES, "report")]
    assert stages["parse"].runs == 1


def test_all_stages_run_once(config: PipelineConfig, stages: dict[str, CountingStage], rows: Rows) -> None:
    runner.run_stages(config, tuple(STAGES))
    first = rows()
    assert [row[:2] for row in first] == [[name, "done"] for name in (*WITHOUT_PARSE, "report")]
    assert first[0][3:] == ["result of extract", str(config.work_dir / "extract" / ("0" * 16))]
    runner.run_stages(config, tuple(STAGES))
    *others, report = rows()
    assert [row[:4] for row in others] == [[name, "up to date", "0.0", f"result of {name}"] for name in WITHOUT_PARSE]
    assert report[:2] == ["report", "up to date"]
    assert [stage.runs for stage in stages.values()] == [1, 0, 1, 1, 1, 1]
    assert set(statuses(config).values()) == {"FINISHED"}
    assert len(statuses(config)) == 6


def test_the_report_is_on_disk_and_in_mlflow_and_its_path_is_printed(
    config: PipelineConfig, stages: dict[str, CountingStage], rows: Rows
) -> None:
    runner.run_stages(config, tuple(STAGES))
    path = Path(rows()[-1][4])
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert "All stages are done." in path.read_text()
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    (parent,) = client.search_runs([experiment.experiment_id], f"tags.`mlflow.runName` LIKE '{config.preset}-%'")
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["report.html"]
    assert parent.data.metrics == {f"{config.dataset.eval_split}/{name}": value for name, value in HEADLINES.items()}


def test_a_report_is_written_of_a_run_that_has_not_come_to_its_end(
    config: PipelineConfig, stages: dict[str, CountingStage]
) -> None:
    stages["evaluate"].failure = StageError("evaluate: no disk")
    with pytest.raises(StageError, match="no disk"):
        runner.run_stages(config, tuple(STAGES))
    content = runner.report(config).read_text()
    assert f"2 of {len(WITHOUT_PARSE)} stages are done." in content


def test_a_dry_run_does_nothing(config: PipelineConfig, stages: dict[str, CountingStage], rows: Rows) -> None:
    runner.run_stages(config, tuple(STAGES), dry_run=True)
    assert [row[:3] for row in rows()] == [[name, "to do", "a lot"] for name in WITHOUT_PARSE]
    assert [stage.runs for stage in stages.values()] == [0] * 6


def test_a_stage_alone_needs_those_before_it(config: PipelineConfig, stages: dict[str, CountingStage]) -> None:
    with pytest.raises(StageError, match=r"the output of extract is to do .* pipelines/extract.py"):
        runner.run_stages(config, ["train"])
    runner.run_stages(config, ["extract"])
    runner.run_stages(config, ["train"])
    assert [stage.runs for stage in stages.values()] == [1, 0, 1, 0, 0, 0]
    # One pipeline: the stages that ran one by one are children of one parent.
    assert len(statuses(config)) == 3


@pytest.mark.parametrize(("failure", "status"), [(StageError("collapsed"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_failure_ends_the_runs_and_the_next_start_goes_on(
    config: PipelineConfig, stages: dict[str, CountingStage], failure: BaseException, status: str
) -> None:
    stages["train"].failure = failure
    with pytest.raises(type(failure)):
        runner.run_stages(config, tuple(STAGES))
    assert statuses(config)["extract"] == "FINISHED"
    assert statuses(config)["train"] == status
    assert stages["evaluate"].runs == 0
    stages["train"].failure = None
    runner.run_stages(config, tuple(STAGES))
    assert stages["extract"].runs == 1
    assert set(statuses(config).values()) == {"FINISHED"}
    assert len(statuses(config)) == 6
