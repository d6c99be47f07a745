"""Trackers against a real MLflow database, and against one that does not answer."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import pickle
import secrets
import sqlite3
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.registration import active_run
from pipelines.runtime.stage import StageError
from pipelines.tracking import PipelineRuns, Tracker, TrackingError, client, recorded_run_url
from pipelines.tracking.client import connect
from preprocessing.storage.redaction import SecretAddress

FINGERPRINT = "ab" * 32


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}"])


def stored(config: PipelineConfig, tracker: Tracker) -> Run:
    return MlflowClient(config.tracking_uri).get_run(tracker.run_id)


def history(config: PipelineConfig, tracker: Tracker, name: str) -> list[tuple[int, float]]:
    metrics = MlflowClient(config.tracking_uri).get_metric_history(tracker.run_id, name)
    return [(metric.step, metric.value) for metric in metrics]


def artifacts(config: PipelineConfig, tracker: Tracker, folder: str | None = None) -> list[str]:
    return [file.path for file in MlflowClient(config.tracking_uri).list_artifacts(tracker.run_id, folder)]


class Outage:
    """Makes every call of MLflow's client fail while it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.calls = 0
        names = ("log_batch", "log_artifact", "set_terminated", "get_run", "create_run")
        for name in (*names, "get_experiment_by_name"):
            monkeypatch.setattr(MlflowClient, name, self._failing(getattr(MlflowClient, name)))

    def _failing(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                self.calls += 1
                raise MlflowException("connection refused")
            return real(*args, **kwargs)

        return call


def test_a_database_on_another_machine_is_told(config: PipelineConfig, tmp_path: Path) -> None:
    """MLflow would make an empty one here, and what a training logs would be nowhere."""
    with PipelineRuns(config.experiment, FINGERPRINT) as runs, runs.parent as tracker:
        elsewhere = replace(tracker.handle, uri=f"sqlite:///{tmp_path}/absent/mlflow.db")
        with pytest.raises(TrackingError, match=r"the database .*/absent/mlflow\.db is not on .*: name a server"):
            Tracker(elsewhere)
        Tracker(replace(tracker.handle, uri=f"{tracker.handle.uri}?timeout=60"))
    assert not (tmp_path / "absent").exists()


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def test_a_pipeline_has_a_parent_and_a_child_for_each_stage(config: PipelineConfig) -> None:
    runs = PipelineRuns(config.experiment, FINGERPRINT)
    with runs.parent as parent, runs.child("extract") as child:
        parent.log_params({"seed": 0, "model": {"embed_dim": 256}, "rows": {"L_Tri (K = 1)": {"loss.bound": 1}}})
        child.log_metrics({"dev/i2t_r01": 1.5}, step=3)
        child.log_metrics({"dev/i2t_r01": 2.5}, step=4)
    run = stored(config, child)
    assert run.data.tags["mlflow.parentRunId"] == parent.run_id
    assert run.info.status == stored(config, parent).info.status == "FINISHED"
    assert history(config, child, "dev/i2t_r01") == [(3, 1.5), (4, 2.5)]
    expected = {"seed": "0", "model.embed_dim": "256", "rows.L_Tri _K _ 1_.loss.bound": "1"}
    assert stored(config, parent).data.params == expected
    assert run.info.artifact_uri.startswith((config.work_dir / "mlartifacts").as_uri())
    experiment = MlflowClient(config.tracking_uri).get_experiment_by_name("scenes")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "`dev/rsum`" in experiment.tags["mlflow.note.content"]
    assert parent.run_url() == recorded_run_url(config.experiment, FINGERPRINT)
    assert parent.run_id in parent.run_url()


def test_a_second_start_goes_on_in_the_same_runs(config: PipelineConfig) -> None:
    runs = PipelineRuns(config.experiment, FINGERPRINT)
    child = runs.child("train")
    child.log_params({"seed": 0})
    again = PipelineRuns(config.experiment, FINGERPRINT)
    child_again = again.child("train")
    child_again.log_params({"seed": 1, "epochs": 2})  # a parameter is written once
    assert (again.parent.run_id, child_again.run_id) == (runs.parent.run_id, child.run_id)
    assert stored(config, child).data.params == {"seed": "0", "epochs": "2"}
    assert PipelineRuns(config.experiment, "cd" * 32).parent.run_id != runs.parent.run_id


@pytest.mark.parametrize("text", ["", "{}", '{"params": 1}'])
def test_damaged_records_are_told_and_replaced(
    config: PipelineConfig, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = PipelineRuns(config.experiment, FINGERPRINT).parent
    (record,) = config.work_dir.glob("pipelines/*/run.json")
    unsent = config.work_dir / "mlflow-unsent" / "x" / "host-1" / "pending.json"
    unsent.parent.mkdir(parents=True)
    for path in (record, unsent):
        path.write_text(text)
    assert recorded_run_url(config.experiment, FINGERPRINT) is None
    again = PipelineRuns(config.experiment, FINGERPRINT).parent
    assert again.run_id != first.run_id
    assert recorded_run_url(config.experiment, FINGERPRINT) == again.run_url()
    assert f"{record} is damaged" in caplog.text
    assert f"{unsent} is damaged" in caplog.text
    assert unsent.with_suffix(".damaged").read_text() == text


def test_deleted_runs_are_opened_again_and_a_deleted_experiment_is_refused(config: PipelineConfig) -> None:
    first = PipelineRuns(config.experiment, FINGERPRINT).parent
    MlflowClient(config.tracking_uri).delete_run(first.run_id)
    assert PipelineRuns(config.experiment, FINGERPRINT).parent.run_id != first.run_id
    MlflowClient(config.tracking_uri).delete_experiment(first.handle.experiment_id)
    with pytest.raises(TrackingError, match="has been deleted"):
        PipelineRuns(config.experiment, FINGERPRINT)


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError("no good"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_how_a_run_ends(config: PipelineConfig, error: BaseException | None, status: str) -> None:
    tracker = PipelineRuns(config.experiment, FINGERPRINT).parent

    with contextlib.suppress(BaseException), tracker:
        if error is not None:
            raise error
    run = stored(config, tracker)
    assert run.info.status == status
    assert run.data.tags.get("error") == ("ValueError: no good" if status == "FAILED" else None)
    with PipelineRuns(config.experiment, FINGERPRINT).parent as again:
        assert "error" not in stored(config, again).data.tags


def test_artifacts(config: PipelineConfig, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text("{}")
    with PipelineRuns(config.experiment, FINGERPRINT).parent as tracker:
        tracker.log_artifact(file, "checkpoints/best")
        tracker.log_dict([{"reason": "é"}], "skipped.json")
    assert artifacts(config, tracker) == ["checkpoints", "skipped.json"]
    assert artifacts(config, tracker, "checkpoints/best") == ["checkpoints/best/model.json"]
    path = MlflowClient(config.tracking_uri).download_artifacts(tracker.run_id, "skipped.json", str(tmp_path))
    assert json.loads(Path(path).read_text(encoding="utf-8")) == [{"reason": "é"}]
    assert not [path for path in (config.work_dir / "mlflow-unsent").rglob("*") if path.is_file()]


def test_a_metric_name_that_mlflow_refuses(config: PipelineConfig) -> None:
    with pytest.raises(ValueError, match="dev/i2t_r@1"):
        PipelineRuns(config.experiment, FINGERPRINT).parent.log_metrics({"dev/i2t_r@1": 1.0})


def test_metrics_travel_in_batches(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = PipelineRuns(config.experiment, FINGERPRINT).parent
    sizes: list[int] = []
    real = MlflowClient.log_batch

    def counting(self: MlflowClient, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        sizes.append(len(metrics))
        real(self, run_id, metrics=metrics, params=params, tags=tags)

    monkeypatch.setattr(MlflowClient, "log_batch", counting)
    for step in range(1200):
        tracker.log_metrics({"loss": float(step)}, step)
    tracker.close()
    assert sizes == [500, 500, 200]
    assert history(config, tracker, "loss") == [(step, float(step)) for step in range(1200)]


def test_an_outage_costs_nothing(
    config: PipelineConfig, outage: Outage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = PipelineRuns(config.experiment, FINGERPRINT).parent
    outage.on = True
    with caplog.at_level(logging.WARNING):
        tracker.log_params({"seed": 0})
        tracker.set_tags({"split": "dev"})
        tracker.log_metrics({"loss": 1.0}, step=1)
        tracker.log_dict({}, "x.json")
        assert not tracker.flush()
    assert outage.calls == 1  # it does not ask again at every call
    assert len(caplog.records) == 1
    outage.on = False
    assert tracker.flush(force=True)
    run = stored(config, tracker)
    assert (run.data.params["seed"], run.data.tags["split"], run.data.metrics["loss"]) == ("0", "dev", 1.0)
    assert artifacts(config, tracker) == ["x.json"]


def test_what_a_process_could_not_send_arrives_with_the_next(config: PipelineConfig, outage: Outage) -> None:
    tracker = PipelineRuns(config.experiment, FINGERPRINT).parent
    outage.on = True
    with tracker:
        tracker.log_metrics({"loss": 1.0}, step=1)
        tracker.log_dict({}, "x.json")
        tracker.set_tags({"split": "dev"})
    outage.on = False
    again = PipelineRuns(config.experiment, FINGERPRINT).parent
    assert again.run_id == tracker.run_id
    again.close()
    run = stored(config, again)
    assert (run.data.metrics["loss"], run.data.tags["split"], run.info.status) == (1.0, "dev", "FINISHED")
    assert artifacts(config, again) == ["x.json"]


def test_a_full_disk_does_not_hide_the_error_that_ended_the_run(
    config: PipelineConfig, outage: Outage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = PipelineRuns(config.experiment, FINGERPRINT).parent
    outage.on = True
    monkeypatch.setattr("pipelines.tracking.tracker.write_json_atomic", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    tracker.log_metrics({"loss": 1.0}, step=1)
    with pytest.raises(StageError, match="what to do"), tracker:
        raise StageError("what to do")
    assert "cannot be kept" in caplog.text
    assert "to send what is kept" not in caplog.text


def test_a_worker_leaves_what_it_could_not_send_to_the_one_that_ends_the_run(
    config: PipelineConfig, outage: Outage
) -> None:
    owner = PipelineRuns(config.experiment, FINGERPRINT).parent
    worker = Tracker(owner.handle)
    worker._spool = worker._spools / "another-host-1"
    outage.on = True
    worker.log_metrics({"loss": 1.0}, step=1)
    worker.log_dict({}, "x.json")
    assert not worker.detach(force=False)
    outage.on = False
    owner.close()
    assert history(config, owner, "loss") == [(1, 1.0)]
    assert artifacts(config, owner) == ["x.json"]


def test_a_run_cannot_be_opened(config: PipelineConfig, outage: Outage) -> None:
    outage.on = True
    with pytest.raises(TrackingError, match=r"tracking.uri sqlite.*connection refused"):
        PipelineRuns(config.experiment, FINGERPRINT)


def test_the_active_run_of_mlflow(config: PipelineConfig) -> None:
    import mlflow

    with PipelineRuns(config.experiment, FINGERPRINT).parent as tracker:
        with active_run(tracker):
            mlflow.log_metric("x", 1.0)
        assert mlflow.active_run() is None
        assert stored(config, tracker).info.status == "RUNNING"
    assert stored(config, tracker).data.metrics == {"x": 1.0}


def test_the_page_on_a_server(config: PipelineConfig) -> None:
    assert recorded_run_url(config.experiment, FINGERPRINT) is None
    handle = PipelineRuns(config.experiment, FINGERPRINT).parent.handle
    remote = Tracker(replace(handle, uri="http://mlflow.example:80/"))
    page = f"http://mlflow.example:80/#/experiments/{handle.experiment_id}/runs/{handle.run_id}"
    assert remote.run_url() == f"{page}?workflowType=machine_learning"


def test_nothing_that_is_logged_shows_a_secret(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-key")
    address = "http://user:planted@host"
    with (
        contextlib.suppress(RuntimeError),
        PipelineRuns(config.experiment, FINGERPRINT) as runs,
        runs.parent as tracker,
    ):
        tracker.log_params({"tracking": {"uri": address}, "proxy": "planted-key"})
        tracker.set_tags({"address": address})
        raise RuntimeError(f"no answer from {address}")
    run = stored(config, tracker)
    assert run.data.params == {"tracking.uri": "http://user:***@host", "proxy": "***"}
    assert run.data.tags["address"] == "http://user:***@host"
    assert run.data.tags["error"] == "RuntimeError: no answer from http://user:***@host"
    assert "planted" not in str(run.to_dictionary())


def test_records_of_runs_hold_no_password(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, given = "http://user:planted@host", []
    client = connect(config.tracking_uri)

    def connected(address: str, **_options: object) -> MlflowClient:
        given.append(address)
        return client

    monkeypatch.setattr("mlflow.MlflowClient", connected)
    tracking = config.tracking.model_copy(update={"uri": SecretAddress(uri)})
    config = config.model_copy(update={"tracking": tracking})
    with PipelineRuns(config.experiment, FINGERPRINT) as runs, runs.parent as tracker:
        assert "planted" not in repr(tracker.handle)
        assert b"planted" not in pickle.dumps(tracker.handle)
    assert set(given) == {uri}
    (record,) = config.work_dir.glob("pipelines/*/run.json")
    assert json.loads(record.read_text())["uri"] == "http://user:***@host"
    assert recorded_run_url(config.experiment, FINGERPRINT) == tracker.run_url()
    assert tracker.run_url().startswith("http://host/#/experiments/")


def test_an_address_that_mlflow_refuses_is_named_without_its_password() -> None:
    password = secrets.token_hex(8)
    with pytest.raises(TrackingError) as caught:
        connect(f"nonsense://user:{password}@host")
    assert "nonsense://user:***@host" in str(caught.value)
    assert password not in "".join(traceback.format_exception(caught.value))


def test_runs_of_a_pipeline_that_was_killed_are_ended_by_the_next_start(config: PipelineConfig) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_PIPELINE, str(config.work_dir)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    run_ids = process.stdout.readline().split()
    client = MlflowClient(config.tracking_uri)
    with PipelineRuns(config.experiment, "cd" * 32):
        assert [client.get_run(run_id).info.status for run_id in run_ids] == ["RUNNING"] * 2  # it is alive
    process.kill()
    process.communicate()
    with PipelineRuns(config.experiment, "cd" * 32) as again:
        assert [client.get_run(run_id).info.status for run_id in run_ids] == ["KILLED"] * 2
        assert client.get_run(again.parent.run_id).info.status == "RUNNING"


KILLED_PIPELINE = f"""
import sys, time
from pipelines.config import load_config
from pipelines.tracking import PipelineRuns
runs = PipelineRuns(load_config(None, ["work_dir=" + sys.argv[1]]).experiment, "{FINGERPRINT}")
print(runs.parent.run_id, runs.child("train").run_id, flush=True)
time.sleep(600)
"""


def test_the_end_of_a_run_that_could_not_be_told_is_told_by_the_next_start(
    config: PipelineConfig, outage: Outage
) -> None:
    with PipelineRuns(config.experiment, FINGERPRINT) as runs:
        outage.on = True
        runs.parent.log_metrics({"train/loss": 1.0}, step=1)
        runs.parent.close("FAILED")
        outage.on = False
    assert stored(config, runs.parent).info.status == "RUNNING"
    with PipelineRuns(config.experiment, "cd" * 32):
        assert stored(config, runs.parent).info.status == "FAILED"
        assert history(config, runs.parent, "train/loss") == [(1, 1.0)]


def test_a_locked_database_is_one_message(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_SQLITE_SECONDS", 0.1)
    with contextlib.closing(sqlite3.connect(config.work_dir / "mlflow.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TrackingError, match="another process has locked it"):
            PipelineRuns(config.experiment, FINGERPRINT)
    PipelineRuns(config.experiment, FINGERPRINT)


DATA = ("scenes dev", "ab" * 18)


def ranked(config: PipelineConfig) -> list[tuple[str, float]]:
    """The models of the experiment and their RSUM, best first."""
    client = MlflowClient(config.tracking_uri)
    (experiment,) = [each for each in client.search_experiments() if each.name == "scenes"]
    best_first = [{"field_name": "metrics.dev/rsum", "ascending": False}]
    models = client.search_logged_models([experiment.experiment_id], order_by=best_first)
    assert {str(model.status) for model in models} == {"READY"}
    return [(model.name, metric.value) for model in models for metric in model.metrics if metric.key == "dev/rsum"]


def test_the_models_of_a_run_are_ranked_by_their_metrics(config: PipelineConfig, outage: Outage) -> None:
    with PipelineRuns(config.experiment, FINGERPRINT).child("train") as tracker:
        tracker.log_model("epoch-001", {"dev/rsum": 100.0, "dev/i2t_r01": 5.0}, 10, DATA)
        outage.on = True
        tracker.log_model("epoch-002", {"dev/rsum": 140.0}, 20, DATA)
        tracker.detach()
        outage.on = False
    with PipelineRuns(config.experiment, FINGERPRINT).child("train") as tracker:
        tracker.log_model("epoch-003", {"dev/rsum": 120.0}, 30, DATA)
        tracker.log_model("epoch-003", {"dev/rsum": 120.0}, 30, DATA)  # as after a kill between the two
    assert list(dict.fromkeys(ranked(config))) == [("epoch-002", 140.0), ("epoch-003", 120.0), ("epoch-001", 100.0)]
    assert sorted(set(history(config, tracker, "dev/rsum"))) == [(10, 100.0), (20, 140.0), (30, 120.0)]
    models = MlflowClient(config.tracking_uri).search_logged_models([tracker.handle.experiment_id])
    assert len(models) == 3
    assert {(metric.dataset_name, metric.dataset_digest) for model in models for metric in model.metrics} == {DATA}
    assert {model.source_run_id for model in models} == {tracker.run_id}
    runs = PipelineRuns(config.experiment, FINGERPRINT)
    runs.parent.link_model(models[0].model_id)
    outputs = MlflowClient(config.tracking_uri).get_run(runs.parent.run_id).outputs
    assert [output.model_id for output in outputs.model_outputs] == [models[0].model_id]
    outage.on = True
    runs.parent.link_model(models[1].model_id)  # left out, and the pipeline continues


def test_the_load_of_the_machine_is_logged(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    for _ in range(2):
        with PipelineRuns(config.experiment, FINGERPRINT).child("train") as tracker, tracker.system_metrics():
            time.sleep(0.5)
    steps = [step for step, _ in history(config, tracker, "system/system_memory_usage_percentage")]
    assert steps == list(range(len(steps)))
    assert len(steps) > 2
