"""The team's MLflow server on a real PostgreSQL, with artifacts on S3: who gets in, what a pipeline leaves, backups."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import load_config
from pipelines.registry.registration import active_run, register_bundle
from pipelines.serving.requirements import pip_requirements
from pipelines.tracking import PipelineRuns
from preprocessing.storage.s3 import S3Storage
from tests.infra.pins import INFRA
from tests.integration import mlflow_server, postgres
from tests.pipelines.tiny_bundle import write_tiny_bundle

BACKUP, RESTORE = (INFRA / "mlflow" / f"{name}.sh" for name in ("backup", "restore"))
HOST = "mlflow.example.com:5000"
PASSWORD = "a long password"


@pytest.fixture(scope="module")
def database() -> Iterator[dict[str, str]]:
    """The variables of libpq for a server's empty database."""
    with postgres.running() as variables:
        yield variables


def run(script: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(script), *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def sql(database: dict[str, str], text: str) -> str:
    command = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command", text]
    done = subprocess.run(command, env={**os.environ, **database}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def filled(database: dict[str, str]) -> dict[str, str]:
    """A database of one test with a table."""
    name = f"test_{time.monotonic_ns()}"
    sql(database, f"CREATE DATABASE {name}")
    own = {**database, "PGDATABASE": name}
    sql(own, "CREATE TABLE runs (id int PRIMARY KEY, note text); INSERT INTO runs VALUES (1, 'Grüße'), (2, NULL)")
    return own


def test_what_was_backed_up_comes_back(filled: dict[str, str], tmp_path: Path) -> None:
    backup = run(BACKUP, tmp_path, **filled)
    assert backup.returncode == 0, backup.stderr
    (file,) = tmp_path.iterdir()
    assert str(file) == backup.stdout.strip()
    assert file.stat().st_mode & 0o777 == 0o600

    sql(filled, "DELETE FROM runs; CREATE TABLE later (id int)")
    refused = run(RESTORE, file, **filled)
    assert refused.returncode == 1
    assert "holds 2 tables; add --replace" in refused.stderr
    assert sql(filled, "SELECT count(*) FROM runs") == "0"

    restored = run(RESTORE, file, "--replace", **filled)
    assert restored.returncode == 0, restored.stderr
    assert sql(filled, "SELECT id, note FROM runs ORDER BY id") == "1|Grüße\n2|"
    assert sql(filled, "SELECT to_regclass('later') IS NULL") == "t"


def test_a_backup_that_was_cut_short_changes_nothing(filled: dict[str, str], tmp_path: Path) -> None:
    run(BACKUP, tmp_path, **filled)
    (file,) = tmp_path.iterdir()
    # The list of contents is whole, the data are not.
    file.write_bytes(file.read_bytes()[:-20])
    failed = run(RESTORE, file, "--replace", **filled)
    assert failed.returncode != 0
    assert sql(filled, "SELECT count(*) FROM runs") == "2"
    file.write_bytes(b"PGDMP and nothing more")
    refused = run(RESTORE, file, "--replace", **filled)
    assert "is no whole backup" in refused.stderr
    assert sql(filled, "SELECT count(*) FROM runs") == "2"


def test_the_last_backups_are_kept(filled: dict[str, str], tmp_path: Path) -> None:
    name = filled["PGDATABASE"]
    old = [tmp_path / f"{name}-2020010{day}T000000Z.dump" for day in (1, 2, 3)]
    other = tmp_path / "other-20200101T000000Z.dump"
    for file in (*old, other):
        file.write_bytes(b"x")
    assert run(BACKUP, tmp_path, 2, **filled).returncode == 0
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left[0] == other.name
    assert left[1] == old[2].name
    assert len(left) == 3


def test_a_backup_that_fails_leaves_nothing_and_deletes_nothing(filled: dict[str, str], tmp_path: Path) -> None:
    old = tmp_path / f"{filled['PGDATABASE']}-20200101T000000Z.dump"
    old.write_bytes(b"x")
    failed = run(BACKUP, tmp_path, 1, **{**filled, "PGPASSWORD": "wrong"})
    assert failed.returncode != 0
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("keep", ["0", "-1", "all"])
def test_a_bad_number_of_backups_is_refused(keep: str, tmp_path: Path) -> None:
    refused = run(BACKUP, tmp_path, keep, PGDATABASE="mlflow")
    assert refused.returncode == 1
    assert "KEEP must be a number" in refused.stderr


def test_the_server_says_what_is_not_set() -> None:
    refused = run(mlflow_server.SERVE, PGHOST="localhost", PGUSER="")
    assert refused.returncode == 1
    assert "PGUSER is not set" in refused.stderr


def ask(
    port: int, path: str, host: str = HOST, user: str = "", body: dict[str, object] | None = None
) -> tuple[int, str]:
    """The status and the body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers={"Host": host})
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if user:
        request.add_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="module")
def server(database: dict[str, str], bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that goes by two names."""
    folder, hosts = tmp_path_factory.mktemp("mlflow"), f"{HOST},127.0.0.1:*"
    with mlflow_server.running(database, folder, f"{bucket}/team", PASSWORD, hosts) as port:
        yield port


def test_a_team_works_with_the_server_and_gets_it_back(server: int, database: dict[str, str], tmp_path: Path) -> None:
    experiments = "/api/2.0/mlflow/experiments"
    assert ask(server, "/health")[0] == 200
    assert ask(server, f"{experiments}/search?max_results=5")[0] == 401
    assert ask(server, f"{experiments}/search?max_results=5", user="admin:wrong")[0] == 401
    assert (
        ask(server, f"{experiments}/search?max_results=5", host="evil.example.com", user=f"admin:{PASSWORD}")[0] == 403
    )

    status, body = ask(server, f"{experiments}/create", user=f"admin:{PASSWORD}", body={"name": "flickr8k"})
    assert status == 200, body
    status, body = ask(server, f"{experiments}/get-by-name?experiment_name=flickr8k", user=f"admin:{PASSWORD}")
    assert json.loads(body)["experiment"]["artifact_location"].startswith("mlflow-artifacts:/")

    folder = tmp_path / "backups"
    assert run(BACKUP, folder, **database).returncode == 0
    (file,) = folder.iterdir()
    copy = {**database, "PGDATABASE": "mlflow_copy"}
    sql(database, "CREATE DATABASE mlflow_copy")
    assert run(RESTORE, file, **copy).returncode == 0
    # Runs and users are in the one database, and so in the one backup.
    assert sql(copy, "SELECT name FROM experiments WHERE name = 'flickr8k'") == "flickr8k"
    assert sql(copy, "SELECT username FROM users") == "admin"


@pytest.mark.usefixtures("s3_client")
def test_a_pipeline_logs_and_registers_through_the_server(
    server: int, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    address = f"http://127.0.0.1:{server}"
    config = load_config(None, [f"work_dir={tmp_path}", f"tracking={{uri: '{address}', experiment: tiny}}"])
    with PipelineRuns(config.experiment, "0" * 64) as runs, runs.parent:
        with runs.child("train") as tracker:
            for step in range(5):
                tracker.log_metrics({"train/loss": 30 / (1 + step)}, step)
            tracker.log_artifact(Path(__file__), "plots")
        with runs.child("register") as register, active_run(register):
            bundle = write_tiny_bundle(tmp_path / "bundle")
            needed, text = pip_requirements(bundle), "Trained on six scenes."
            version = register_bundle(bundle, "tiny", "abc", needed, {"vse.seed": "0"}, {"dev/rsum": 119.0}, text)

    client = MlflowClient(address, address)
    losses = client.get_metric_history(tracker.run_id, "train/loss")
    assert [(entry.step, entry.value) for entry in losses] == [(step, 30 / (1 + step)) for step in range(5)]
    assert client.get_run(tracker.run_id).data.tags["mlflow.parentRunId"] == runs.parent.run_id
    registered = client.get_model_version_by_alias("tiny", "challenger")
    assert (registered.description, registered.tags["vse.seed"]) == ("Trained on six scenes.", "0")
    names = [entry.name for entry in S3Storage(f"{bucket}/team").list()]
    assert f"{tracker.handle.experiment_id}/{tracker.run_id}/artifacts/plots/{Path(__file__).name}" in names
    # The server takes them one by one.
    assert 10 < len([name for name in names if f"/{version.model_id}/" in name]) < 40
