"""A second machine finishes what the first began: everything on S3, every machine with a disk of its own.

What runs is what the Kubernetes manifests describe: their command, their configuration, their work folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.config import load_config
from pipelines.registry.models import CHAMPION, aliases_of
from pipelines.runtime.outputs import OUTPUTS
from pipelines.stages.runner import run_stages
from pipelines.stages.train import run as train
from pipelines.training.loss_log import LOSSES
from preprocessing.storage import lease
from preprocessing.storage.s3 import S3Storage
from tests.conftest import ROOT
from tests.infra.pins import INFRA
from tests.integration import mlflow_server
from tests.integration.faults import FaultyProxy, faulty_proxy
from tests.integration.hosts import HEAD, Hosts
from tests.integration.seams.arriving_scenes import ArrivingScenes
from tests.integration.servers_of_s3 import S3Server, on_swift
from tests.integration.tiny_training import STEPS, TINY
from tests.ports import free_port
from vse_core.models.model import WEIGHTS

pytestmark = pytest.mark.timeout(1800)

STEPS_AN_EPOCH = 10
LEASE_SECONDS = 6
# Machines have one CPU and no GPU; everything else is as in job-config.yaml.
SMALL = (
    "features={gpus_per_actor: 0, cpus_per_actor: 0.5, shard_size: 20}",
    "dataset.images={train: 60, dev: 20}",
    "model={embed_dim: 32, text: {word_dim: 16}}",
    "training={gpus_per_worker: 0, cpus_per_worker: 0.7, batch_size: 32, log_steps: 1, checkpoint_minutes: 0}",
    f"storage.lease_seconds={LEASE_SECONDS}",
)
# What happens on a day of the week, and images that come with it.
WEEK = (("more", 200), ("more", 200), ("nothing", 0), ("lost", 100), ("nothing", 0), ("more", 100), ("more", 100))
SHOP = (
    "features={gpus_per_actor: 0, cpus_per_actor: 0.5, shard_size: 50, batch_size: 50}",
    "model={embed_dim: 64, text: {word_dim: 32}}",
    "training={workers: 1, gpus_per_worker: 0, cpus_per_worker: 0.7, batch_size: 64, epochs: 2, checkpoint_minutes: 0}",
    "training={warmup: 10 steps, learning_rate: 0.002}",
    "loss={mask_same_image: true, all_negatives: 10 epochs}",
    "retrain.keep=3",
    f"storage.lease_seconds={LEASE_SECONDS}",
)
# A client that searches ten times a second, and prints which version has answered; its first lost request ends it.
CLIENT = """
import json, time, urllib.request
query = json.dumps({"text": "a red circle", "k": 3}).encode()
while True:
    request = urllib.request.Request("http://127.0.0.1:8000/search", query, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        print(json.load(answer)["model"], flush=True)
    time.sleep(0.1)
"""


class Site:
    """Machines, the storage and the MLflow server that they have in common, and what they ask for."""

    def __init__(self, hosts: Hosts, s3: FaultyProxy, mlflow: FaultyProxy, folder: Path) -> None:
        self.hosts, self.s3, self.mlflow, self.folder = hosts, s3, mlflow, folder

    def start(self, name: str, *settings: str, small: tuple[str, ...] = SMALL, script: str = "full.py") -> Job:
        """Start the command of rayjob.yaml, or another one, on the head, with the configuration of job-config.yaml."""
        job = yaml.safe_load((INFRA / "kubernetes" / "rayjob.yaml").read_text(encoding="utf-8"))
        config = yaml.safe_load((INFRA / "kubernetes" / "job-config.yaml").read_text(encoding="utf-8"))
        text = config["data"]["job.yaml"].replace("/opt/vse/", f"{ROOT}/")
        file = self.folder / f"{name}.yaml"
        address = f"s3://vse/{self.folder.name}/{name}"
        file.write_text(text.replace("s3://bucket/vse", address).replace("http://mlflow:5000", self.mlflow.endpoint))
        words = job["spec"]["entrypoint"].replace("/etc/vse/job.yaml", str(file)).split()
        overrides = [f"--set={setting}" for setting in (f"tracking.experiment={name}", *small, *settings)]
        command = [sys.executable, str(ROOT / "pipelines" / script), *words[2:], *overrides]
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        self.hosts.environment["VSE_WORK_DIR"] = str(self.hosts.work_dir / name)
        return Job(self.hosts, name, S3Storage(address), self.hosts.run(*command, log=log), log)


class Job:
    """A running command, with what its machines and the storage have of it."""

    def __init__(
        self, hosts: Hosts, name: str, storage: S3Storage, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        self.hosts, self.name, self.storage, self.process, self.log = hosts, name, storage, process, log

    def losses(self) -> list[float]:
        """The losses that a machine has logged so far."""
        disks = [self.hosts.disk_of(number) / self.name for number in range(1, 5)]
        found = [_losses(file.read_text()) for disk in disks for file in disk.glob(f"train/*/{LOSSES}")]
        return max(found, key=len, default=[])

    def renewals(self) -> int:
        """How often the lease of the training was renewed; 0 before and after the training."""
        with contextlib.suppress(FileNotFoundError):
            for entry in self.storage.list("locks/train"):
                return int(json.loads(self.storage.read(entry.name))["renewals"])
        return 0

    def wait_for(self, condition: Callable[[], object], seconds: float = 300) -> None:
        """Return once something has happened, while the command runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def result(self) -> dict[str, Any]:
        """Losses, weights and metrics, once the command has ended well; all of them from the storage."""
        try:
            assert self.process.wait(600) == 0, self.log.read_text()
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None
        names = [entry.name for entry in self.storage.list()]
        assert not [name for name in names if "lease" in name or "/." in name or name.endswith((".lock", ".tmp"))]
        (trained,) = [name for name in names if name.startswith("train/") and name.endswith("/manifest.json")]
        (evaluated,) = [name for name in names if name.startswith("evaluate/") and name.endswith("/manifest.json")]
        folder = trained.rpartition("/")[0]
        best = json.loads(self.storage.read(trained))["best"]
        return {
            "losses": _losses(self.storage.read(f"{folder}/{LOSSES}").decode()),
            "weights": self.storage.read(f"{folder}/{best}/{WEIGHTS}"),
            "metrics": json.loads(self.storage.read(evaluated))["metrics"],
        }


def _losses(text: str) -> list[float]:
    return [json.loads(line)["loss"] for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def site(s3_server: S3Server, bucket: str) -> Iterator[Site]:
    """Hosts, of which none has started; a proxy that hosts reach S3 through, and one to an MLflow server."""
    folder = Path(tempfile.mkdtemp(prefix="vse-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        mlflow_port = free_port()
        hosts = Hosts(folder / "h", {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"})
        stack.callback(hosts.close)
        s3 = stack.enter_context(faulty_proxy(s3_server.port, hosts.listen()))
        mlflow = stack.enter_context(faulty_proxy(mlflow_port, hosts.listen()))
        hosts.environment |= {"AWS_ENDPOINT_URL": s3.endpoint}
        log = folder / "mlflow.log"
        command = ["server", "--port", str(mlflow_port), "--workers", "1", "--allowed-hosts", "*"]
        places = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/runs"]
        program = Path(sys.executable).with_name("mlflow")
        with log.open("wb") as output:
            server = subprocess.Popen([program, *command, *places], stdout=output, stderr=output, process_group=0)
        stack.callback(_end, server)
        mlflow_server.wait_for(server, mlflow_port, log)
        yield Site(hosts, s3, mlflow, folder)


def _end(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(60)


@pytest.mark.usefixtures("ray_cluster", "s3_client")
def test_another_machine_takes_up_a_training(work_dir: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second machine: the first is lost before a step is done, and after more than ten renewals."""
    settings = [*TINY, f"storage.address={bucket}/taken-up"]
    first = load_config(None, [f"work_dir={work_dir}", *settings])
    storage = S3Storage(f"{bucket}/taken-up")

    def lost(*_: object) -> None:
        (name,) = (entry.name for entry in storage.list("locks/train"))
        while json.loads(storage.read(name))["renewals"] <= 10:
            time.sleep(0.1)
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(lease, "_RENEWALS", 600)
        patched.setattr(train, "fit", lost)
        with pytest.raises(ConnectionError):
            run_stages(first, ["extract", "train"])
    other = work_dir.with_name("other")
    other.mkdir()
    shutil.copyfile(work_dir / "mlflow.db", other / "mlflow.db")
    plans = run_stages(load_config(None, [f"work_dir={other}", *settings]), ["extract", "train"])
    assert len((plans["train"].directory / LOSSES).read_text().splitlines()) == STEPS
    assert {entry.name.partition("/")[0] for entry in storage.list()} == {"extract", "pipelines", "tables", "train"}


@on_swift
def test_another_machine_finishes_a_training_that_outlived_ten_renewals(site: Site) -> None:
    """Time and second machine: with one worker the bits are those of an undisturbed run, and nothing comes twice."""
    epochs = 90
    one = ("training.workers=1", f"training.epochs={epochs}", f"loss.all_negatives={epochs} epochs")
    site.hosts.start(HEAD, 2)
    quiet = site.start("quiet", *one).result()
    assert len(quiet["losses"]) == epochs * STEPS_AN_EPOCH

    job = site.start("lost", *one)
    job.wait_for(lambda: job.renewals() > 10 and len(job.losses()) > STEPS_AN_EPOCH)
    assert len(job.losses()) < len(quiet["losses"]), "the run was over before the machines were lost"
    site.hosts.cut_power(HEAD, 2)
    job.process.wait()
    site.s3.clear()
    site.hosts.start(HEAD, 2)
    assert site.start("lost", *one).result() == quiet
    _require_fetched_once(site.s3)


@on_swift
def test_a_run_survives_the_loss_of_one_of_its_machines(site: Site) -> None:
    """Second machine: two workers on machines of their own, of which one is lost."""
    epochs = 10
    two = ("training.workers=2", f"training.epochs={epochs}")
    site.hosts.start(HEAD, 2, 3)
    quiet = site.start("quiet", *two).result()
    assert len(quiet["losses"]) == epochs * STEPS_AN_EPOCH
    assert not [*site.hosts.disk_of(HEAD).glob("quiet/extract/dev/*/*.tar")], "the head has evaluated"

    job = site.start("lost", *two)
    job.wait_for(lambda: len(job.losses()) > STEPS_AN_EPOCH)
    site.hosts.cut_power(3)
    assert len(job.losses()) < len(quiet["losses"]), "the run was over before the machine was lost"
    site.hosts.start(4)
    result = job.result()
    assert result["losses"] == pytest.approx(quiet["losses"], abs=1e-6)
    assert result["metrics"] == pytest.approx(quiet["metrics"], abs=1e-3)


@on_swift
@pytest.mark.nightly
def test_a_service_follows_a_week_of_retrainings_without_losing_a_request(site: Site) -> None:
    """Three machines, of which one is lost in a training; the service and its client are on the third."""
    scenes = ArrivingScenes(site.folder / "shop", sum(images for _, images in WEEK), evaluation=100)
    site.hosts.start(HEAD, 2, 3)
    log, answers = site.folder / "serve.log", site.folder / "answers.log"
    champions: list[str] = []
    with ExitStack() as stack:
        for day, (event, images) in enumerate(WEEK):
            scenes.arrive(images)
            job = site.start("shop", scenes.settings, small=SHOP, script="retrain.py")
            if event == "lost":
                job.wait_for(job.renewals)
                site.hosts.cut_power(2)
                site.hosts.start(2)
            assert job.process.wait(900) == 0, job.log.read_text()
            status = json.loads(job.storage.read("retrain/scenes/status.json"))
            assert (status["outcome"] == "nothing new") == (event == "nothing")
            champion = aliases_of("scenes", f"sqlite:///{site.folder}/mlflow.db")[CHAMPION]
            champions += [] if f"scenes/{champion}" in champions else [f"scenes/{champion}"]
            if day == 0:
                serve = [sys.executable, str(ROOT / "pipelines" / "serve.py"), "--model", "scenes", "--follow"]
                service = site.hosts.run(*serve, "--tracking-uri", site.mlflow.endpoint, log=log, host=3)
                stack.callback(service.terminate)
                _wait_for(lambda: "is served at" in log.read_text(), log)
                client = site.hosts.run(sys.executable, "-c", CLIENT, log=answers, host=3)
                stack.callback(client.terminate)
        _wait_for(lambda: answers.read_text().endswith(f"{champions[-1]}\n"), log)
        assert client.poll() is None, answers.read_text()[-2000:]
    versions = list(dict.fromkeys(answers.read_text().split()))
    assert versions == champions
    assert len(champions) > 1, "no champion was followed by another"


def _wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def _require_fetched_once(s3: FaultyProxy) -> None:
    """Refuse a machine that has got an object twice, but for lists of names and what changes."""
    for (machine, path), times in s3.fetched.items():
        is_listing = "list-type" in path
        changes = "/locks/" in path or LOSSES in path or OUTPUTS in path
        assert times == 1 or is_listing or changes, f"{machine} has got {path} {times} times"
