"""The undocumented parts of MLflow that we stand on are as we need them, and still have no public replacement."""

from __future__ import annotations

import inspect
import logging
from functools import cache
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.store.db import utils

from pipelines.tracking import mlflow_internals


@cache
def page_scripts() -> str:
    """The programs of MLflow's own pages."""
    folder = Path(mlflow.__file__).parent / "server/js/build"
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.js")))


def test_the_kind_of_an_experiment_is_a_tag() -> None:
    assert all(
        name in page_scripts() and value in page_scripts()
        for name, value in mlflow_internals.TRAINING_EXPERIMENT.items()
    )
    found = [name for name in inspect.signature(MlflowClient.create_experiment).parameters if "kind" in name]
    assert not found, f"MlflowClient.create_experiment takes {found} now: use it, without TRAINING_EXPERIMENT"


def test_new_databases_are_announced_by_the_quietened_loggers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("alembic"), "level", logging.INFO)
    monkeypatch.setattr(utils._logger, "level", logging.INFO)
    mlflow_internals.quiet_database_setup()
    assert utils._logger.name == "mlflow.store.db.utils"
    with caplog.at_level(logging.INFO):
        MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()
    assert not [record.message for record in caplog.records if record.levelno < logging.WARNING]


def test_the_page_of_a_run_has_this_address() -> None:
    page = mlflow_internals.run_page("http://host:5000", "1", "ab")
    assert page.endswith(":5000/#/experiments/1/runs/ab?workflowType=machine_learning")
    assert "/experiments/:experimentId/runs/:runUuid" in page_scripts()
    assert '.get("workflowType")' in page_scripts()
    found = [name for name in dir(MlflowClient) if "url" in name and not name.startswith("_")]
    assert not found, f"MlflowClient has {found} now: use it in pipelines/tracking/client.py, without run_page"


def test_deleted_runs_can_be_removed_for_good(work_dir: Path) -> None:
    client = MlflowClient(f"sqlite:///{work_dir}/mlflow.db")
    run = client.create_run("0").info.run_id
    client.delete_run(run)
    assert mlflow_internals.forget(client, [run], [])
    with pytest.raises(mlflow.MlflowException, match="not found"):
        client.get_run(run)
    found = [name for name in dir(MlflowClient) if "hard" in name or "permanent" in name or "gc" in name]
    assert not found, f"MlflowClient has {found} now: use it, without forget"
