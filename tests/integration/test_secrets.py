"""A pipeline and a service whose secrets are real: no file, table, log, message or other process's environment has one.

The tracking server is a PostgreSQL with a password, the storage an S3 server with a secret key, and clients of the
service carry a token.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from preprocessing.storage.s3 import S3Storage
from tests.integration import postgres
from tests.integration.servers_of_s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.integration.tiny_training import TINY
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "token-planted-for-the-clients"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Site:
    """A user's environment and folders, and the secrets that were planted."""

    folder: Path
    ray: Path
    database: dict[str, str]
    environment: dict[str, str]
    secrets: dict[str, str]

    @property
    def uri(self) -> str:
        """The address of the tracking database, with the password."""
        variables = (self.database[f"PG{name}"] for name in ("USER", "PASSWORD", "HOST", "PORT", "DATABASE"))
        return "postgresql+psycopg2://{}:{}@{}:{}/{}".format(*variables)

    def start(self, script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a script as a user does in a terminal."""
        command = [sys.executable, str(ROOT / "pipelines" / script), *arguments]
        variables = self.environment | environment
        return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def leaks(self, files: Iterator[Path]) -> set[tuple[str, str]]:
        """Return the files that hold secrets, with the name of each."""
        return {(str(path), name) for path in files for name in self.found(path.read_bytes())}

    def found(self, content: bytes) -> list[str]:
        """Return the names of the secrets in a content."""
        return [name for name, secret in self.secrets.items() if secret.encode() in content]


@pytest.fixture(scope="module")
def site(s3_server: S3Server, bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ray = Path(tempfile.mkdtemp(prefix="vse-", dir="/tmp"))  # a socket's path is limited to about 100 characters
    with postgres.running() as database:
        secrets = {"database": database["PGPASSWORD"], "storage": SECRET_KEY, "token": TOKEN}
        own = {
            "RAY_TMPDIR": str(ray),
            "TMPDIR": str(ray),
            "AWS_ENDPOINT_URL": s3_server.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }
        site = Site(folder, ray, database, {**os.environ, **own}, secrets)
        config = {
            "inherits": str(ROOT / "pipelines" / "config" / "data" / "scenes.yaml"),
            "work_dir": str(folder / "work"),
            "storage": {"address": f"{bucket}/secrets"},
            "tracking": {"uri": site.uri, "artifacts": str(folder / "artifacts")},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(config))
        yield site
    shutil.rmtree(ray, ignore_errors=True)


@pytest.fixture(scope="module")
def output(site: Site) -> str:
    """What a pipeline prints, from raw data to the registered model."""
    settings = [f"--set={setting}" for setting in (*TINY, "training.epochs=1")]
    process = site.start("full.py", "--config", str(site.folder / "job.yaml"), *settings)
    output, _ = process.communicate(timeout=800)
    assert process.returncode == 0, output
    return output


def files_below(*folders: Path) -> Iterator[Path]:
    return (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_a_pipeline_leaves_no_secret(site: Site, output: str, bucket: str) -> None:
    assert site.leaks(iter([site.folder / "job.yaml"])) == {(str(site.folder / "job.yaml"), "database")}
    assert site.found(output.encode()) == []

    left = [*files_below(site.folder / "work", site.folder / "artifacts", site.ray)]
    names = {path.name for path in left}
    assert {"run.json", "report.html", "manifest.json", "gcs_server.out", "raylet.out", "MLmodel"} <= names
    assert site.leaks(iter(left)) == set()

    stored = S3Storage(f"{bucket}/secrets")
    objects = [entry.name for entry in stored.list()]
    assert any(name.endswith("model.safetensors") for name in objects)
    assert {name: site.found(stored.read(name)) for name in objects} == {name: [] for name in objects}

    dump = subprocess.run(["pg_dump"], env={**os.environ, **site.database}, capture_output=True, check=True).stdout
    assert b"train/loss" in dump  # a worker, which was sent no password, has logged it
    assert b"postgresql+psycopg2://mlflow:***@127.0.0.1" in dump  # parameters of the run
    assert site.found(dump) == []


def test_a_storage_that_does_not_answer_is_named_without_its_password(site: Site) -> None:
    endpoint = f"http://user:{TOKEN}@127.0.0.1:{free_port()}"
    process = site.start(
        "full.py", "--config", str(site.folder / "job.yaml"), AWS_ENDPOINT_URL=endpoint, AWS_MAX_ATTEMPTS="1"
    )
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    assert "http://user:***@127.0.0.1" in output
    assert site.found(output.encode()) == []


@pytest.mark.usefixtures("output")
def test_the_token_of_a_service_is_in_no_other_process(site: Site) -> None:
    port = free_port()
    command = ["--model", "scenes", "--tracking-uri", site.uri, "--port", str(port), "--replicas", "2"]
    process = site.start("serve.py", *command, VSE_SERVE_TOKEN=TOKEN)
    try:
        assert wait_for_answer(process, port) == 200
        marker = f"RAY_TMPDIR={site.ray}".encode()
        others = [
            (number, environment, arguments)
            for number, environment, arguments in processes()
            if marker in environment and number != process.pid
        ]
        assert any(b"ServeReplica" in arguments for _, _, arguments in others)
        assert [number for number, environment, _ in others if TOKEN.encode() in environment] == []
        assert [number for number, _, arguments in others if site.found(arguments)] == []
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert site.found(output.encode()) == []
    assert site.leaks(files_below(site.ray, site.folder / "work", site.folder / "artifacts")) == set()


def wait_for_answer(process: subprocess.Popen[str], port: int) -> int:
    """Search with the token until the service answers; return the status."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    body = json.dumps({"text": "a red ring", "k": 2}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/search", body, headers)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            if error.code != 404:  # Ray Serve's, before the application is there
                return error.code
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("the service has not answered for five minutes")


def processes() -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, environment and command line of every process that may be looked into."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal():
                yield int(folder.name), (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
