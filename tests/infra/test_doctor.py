"""The doctor as it is called: on this machine, on a cluster, and with things amiss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra import checks, doctor
from pipelines.runtime import ray_internals

Lines = dict[str, str]
Ask = Callable[..., tuple[int, Lines]]


def lines_of(output: str) -> Lines:
    """Check -> its line."""
    return {line[6:].partition(":")[0]: line for line in output.splitlines()}


@pytest.fixture
def ask(work_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The doctor's status and lines for settings in a work folder, however full this machine's disk is."""
    monkeypatch.setattr(checks, "FREE_BYTES", 0)

    def call(*settings: str) -> tuple[int, Lines]:
        values = [f"work_dir={work_dir}", *settings]
        status = doctor.main([word for value in values for word in ("--set", value)])
        return status, lines_of(capsys.readouterr().out)

    return call


def test_this_machine_passes_every_check(ask: Ask) -> None:
    status, lines = ask()
    assert status == 0, lines
    assert list(lines) == ["configuration", "Ray", "versions", "GPUs", "disk", "storage", "MLflow"]
    assert all(line.startswith("ok    ") for line in lines.values())
    assert "no cluster is configured" in lines["Ray"]


def test_a_configuration_that_is_wrong_ends_it(ask: Ask) -> None:
    status, lines = ask("training.epochs=many")
    assert status == 1
    assert list(lines) == ["configuration"]
    assert "training.epochs" in lines["configuration"]


def test_everything_is_looked_at_though_something_is_amiss(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    status, lines = ask(f"storage.address={tmp_path}/file/outputs", "tracking.uri=http://127.0.0.1:9")
    assert status == 1
    assert {check for check, line in lines.items() if line.startswith("WRONG ")} == {"storage", "MLflow"}
    assert f"{tmp_path}/file" in lines["storage"]
    assert "docs/s3.md" in lines["storage"]
    assert "no MLflow server answers" in lines["MLflow"]


def test_a_work_folder_that_cannot_be_written(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    status, lines = ask(f"work_dir={tmp_path}/file/work", f"tracking.uri=sqlite:///{tmp_path}/none.db")
    assert status == 1
    assert lines["disk"].startswith("WRONG disk: ")
    assert "Not a directory" in lines["disk"]


def test_a_database_that_is_not_there_yet_is_not_made(ask: Ask, tmp_path: Path) -> None:
    status, lines = ask(f"work_dir={tmp_path}/new")
    assert status == 0
    assert "the first run creates it" in lines["MLflow"]
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_is_no_tracking_server_for_many_machines(tmp_path: Path) -> None:
    found = doctor._tracking(f"sqlite:///{tmp_path}/mlflow.db", 3)
    assert not found.passed
    assert "3 machines" in found.says


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("API request failed with 401", "MLFLOW_TRACKING_PASSWORD"),
        ("Invalid Host header - possible DNS rebinding attack, 403", "MLFLOW_SERVER_ALLOWED_HOSTS"),
        ("the database is of another version", "mlflow db upgrade"),
    ],
)
def test_what_mlflow_says_has_a_remedy(reason: str, remedy: str) -> None:
    assert remedy in doctor._remedy(reason)


def test_a_cluster_without_a_token_is_told(ray_cluster: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "requires_token", lambda: False)
    status, lines = ask(f"ray.address={ray_cluster}")
    assert status == 1
    assert "answers without a token" in lines["Ray"]
    assert "RAY_AUTH_MODE=token" in lines["Ray"]


def test_machines_are_compared(ray_cluster: str, ask: Ask) -> None:
    status, lines = ask(f"ray.address={ray_cluster}")
    assert status == 0, lines
    assert "with token authentication" in lines["Ray"]
    assert lines["machines"] == "ok    machines: 1 of 1 answer"
    assert "2 machines: Python" in lines["versions"]
