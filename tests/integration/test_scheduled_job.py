"""The job of the schedules, submitted to a head as start_head.sh starts it: a first night, and a quiet one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from PIL import Image

from pipelines.config import load_config
from pipelines.registry.models import CHAMPION
from pipelines.retraining.journal import LOG, STATUS
from tests.infra.pins import INFRA, ROOT
from tests.integration.hosts import HEAD, Hosts

# Its head has a network and processes of its own: it may run next to the tests that share a cluster.
pytestmark = pytest.mark.timeout(900)

START_HEAD = str(INFRA / "ray" / "start_head.sh")
MOUNTED = "/etc/vse/job.yaml"
SERVER = "http://127.0.0.1:8265"
IMAGES = 150
"""For training."""

# Prints status and body of an answer to a request with a token, or with none.
ASK = """
import sys, urllib.error, urllib.request
address, *token = sys.argv[1:]
request = urllib.request.Request(address, headers={"Authorization": f"Bearer {each}" for each in token})
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


@dataclass(frozen=True)
class Machine:
    """A host with a head that asks for a token.

    Attributes:
        hosts: the host.
        home: of who has started the head; the token is in it.
        work_dir: of the jobs.
        entrypoint: of the schedules' job, with its configuration.
    """

    hosts: Hosts
    home: Path
    work_dir: Path
    entrypoint: tuple[str, ...]

    def run(self, *command: str) -> tuple[int, str]:
        """The exit status of a command on the host, and what it prints."""
        log = self.home / "output"
        status = self.hosts.run(*command, log=log).wait(600)
        return status, log.read_text(errors="replace")

    def submit(self, night: str, *environment: str) -> tuple[int, str]:
        """Start the job as the schedule does, and wait for its end."""
        options = ["--submission-id", f"nightly-{night}"]
        return self.run("env", *environment, "ray", "job", "submit", *options, "--", *self.entrypoint)

    def ask(self, path: str, *token: str) -> tuple[int, str]:
        """Status and body of an answer of the job server."""
        status, output = self.run(sys.executable, "-c", ASK, f"{SERVER}{path}", *token)
        assert status == 0, output
        code, _, body = output.partition(" ")
        return int(code), body

    def status_of(self, night: str) -> str:
        """Return the job server's status of a job."""
        token = (self.home / ".ray" / "auth_token").read_text().strip()
        status: str = json.loads(self.ask(f"/api/jobs/nightly-{night}", token)[1])["status"]
        return status


def write_config(path: Path) -> None:
    """The configuration that the job mounts, for one machine without S3, MLflow's server and GPU, and small."""
    (manifest,) = yaml.safe_load_all((INFRA / "kubernetes" / "job-config.yaml").read_text(encoding="utf-8"))
    config = yaml.safe_load(manifest["data"][Path(MOUNTED).name])
    config["inherits"] = config["inherits"].replace("/opt/vse", str(ROOT))
    del config["storage"], config["tracking"]
    config["dataset"] = {"images": {"train": IMAGES, "dev": 100}}
    config["model"] = {"embed_dim": 64, "text": {"word_dim": 32}}
    config["features"] |= {"gpus_per_actor": 0, "cpus_per_actor": 1}
    # Enough to be better than chance: what is not is never promoted.
    config["training"] |= {"gpus_per_worker": 0, "epochs": 5, "batch_size": 32, "learning_rate": 0.002}
    config["training"]["warmup"] = "10 steps"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


def scheduled_entrypoint(config: Path) -> tuple[str, ...]:
    """The command of the schedules, with a configuration in place of the mounted one."""
    manifest = yaml.safe_load((INFRA / "kubernetes" / "raycronjob.yaml").read_text(encoding="utf-8"))
    words = manifest["spec"]["jobTemplate"]["entrypoint"].split()
    assert MOUNTED in words
    return tuple(str(config) if word == MOUNTED else word for word in words)


@pytest.fixture(scope="module")
def machine(mlflow_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    work_dir = tmp_path_factory.mktemp("work")
    shutil.copyfile(mlflow_template, work_dir / "mlflow.db")
    folder = Path(tempfile.mkdtemp(prefix="vse-", dir="/tmp"))
    home = folder / "home"
    home.mkdir()
    environment = {
        "HOME": str(home),  # the token that the head generates is written there
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_API_SERVER_ADDRESS": SERVER,
        "VSE_WORK_DIR": str(work_dir),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_AUTH_TOKEN")  # that of the other tests: this head generates its own
        hosts = Hosts(folder, environment, head=(START_HEAD, "--num-cpus", "4"))
    try:
        hosts.start(HEAD)
        write_config(home / "job.yaml")
        yield Machine(hosts, home, work_dir, scheduled_entrypoint(home / "job.yaml"))
    finally:
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


def written(folder: Path) -> dict[Path, int]:
    """When each file was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_who_has_no_token_is_refused(machine: Machine) -> None:
    assert machine.ask("/api/jobs/")[0] == 401
    assert machine.ask("/api/jobs/", "wrong" * 16)[0] == 403
    refused, output = machine.submit("0", "RAY_AUTH_MODE=disabled")
    assert refused == 1, output
    assert "AuthenticationError" in output
    assert not (machine.work_dir / "retrain").exists()


def test_a_working_directory_travels_with_its_job(machine: Machine) -> None:
    """The table's path is relative to the configuration's file, and the images' to the table, also at the other end."""
    folder = machine.home / "project"
    (folder / "data" / "photos").mkdir(parents=True)
    names = [f"{number}.png" for number in range(12)]
    for number, name in enumerate(names):
        Image.new("RGB", (40, 30), (20 * number, 90, 60)).save(folder / "data" / "photos" / name)
    rows = [f"photos/{name},a picture of {name}" for name in names]
    (folder / "data" / "table.csv").write_text("\n".join(["image,caption", *rows]))
    (folder / "photos.yaml").write_text(
        "dataset: {format: table, tables: {train: data/table.csv, dev: 30 %}}\n"
        "features: {extractor: grid, weights: tiny_resnet, random_seed: 0}\n"
        "training: {batch_size: 4}\n"
    )
    command = ("vse", "extract", "--config", "photos.yaml")
    status, output = machine.run("ray", "job", "submit", "--working-dir", str(folder), "--", *command)
    assert status == 0, output
    assert "12 images, 12 captions" in output
    assert list(machine.work_dir.glob("extract/train/*/shard-*.tar"))


@pytest.mark.nightly
def test_two_nights(machine: Machine, record_property: Callable[[str, object], None]) -> None:
    config = load_config(machine.home / "job.yaml", [f"work_dir={machine.work_dir}"])
    status = machine.work_dir / "retrain" / config.registered_model / STATUS
    client = MlflowClient(config.tracking_uri, config.tracking_uri)

    ended, output = machine.submit("1")
    assert (ended, machine.status_of("1")) == (0, "SUCCEEDED"), output
    first = json.loads(status.read_text())
    assert (first["outcome"], first["record"]["data"]["train"]["new_images"]) == ("promoted", IMAGES), first
    assert client.get_model_version_by_alias(config.registered_model, CHAMPION).version == 1

    before, clock = written(machine.work_dir), time.monotonic()
    ended, output = machine.submit("2")
    record_property("seconds_of_a_night_without_news", round(time.monotonic() - clock, 1))
    assert (ended, machine.status_of("2")) == (0, "SUCCEEDED"), output
    assert json.loads(status.read_text())["outcome"] == "nothing new"
    changed = {path.name for path, when in written(machine.work_dir).items() if before.get(path) != when}
    assert changed == {STATUS, LOG}  # nothing was extracted, trained or registered
    assert len(client.search_model_versions(f"name = '{config.registered_model}'")) == 1

    again, output = machine.submit("2")
    assert again == 1, output
    assert "already exists" in output
