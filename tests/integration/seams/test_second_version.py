"""Second version: what a gallery, an export and a running service use stays as it was made, and says what is newer."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import pytest

from pipelines.evaluation import Rsum
from pipelines.exports import export
from pipelines.registry.models import find_bundle
from pipelines.registry.registration import register_bundle
from pipelines.retraining.promotion import promote
from pipelines.retrieval import index, search
from pipelines.runtime.cli import guarded
from pipelines.runtime.stage import StageReport
from preprocessing.features.images import load_image
from tests.integration.test_serve import ask
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

SERVE = Path(__file__).parents[3] / "pipelines" / "serve.py"
COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "index": index.main,
    "search": search.main,
    "export": export.main,
}
REINDEX = "python pipelines/index.py --name holiday --model shop"


class Shop:
    """A registry with one model, "shop", in the work folder of this test."""

    def __init__(self, work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.uri = work_dir.parent, f"sqlite:///{work_dir / 'mlflow.db'}"
        self.gallery = work_dir / "galleries" / "holiday"
        self._capsys = capsys

    def register(self, seed: int, difference: float = 0.0) -> bool:
        """Register other weights, compared with the champion by a difference of RSUM; returns whether they win."""
        bundle = write_tiny_bundle(self.folder / f"bundle-{seed}", seed)
        mlflow.set_tracking_uri(self.uri)
        mlflow.set_registry_uri(self.uri)
        experiment = mlflow.create_experiment(f"shop-{seed}", artifact_location=(self.folder / "artifacts").as_uri())
        with mlflow.start_run(experiment_id=experiment):
            register_bundle(bundle, "shop", str(seed), [], {}, {})

        def compared(*_: str) -> StageReport:
            recalls = {"rsum": [0.0, 0.0, difference, difference - 1, difference + 1, 0.01]}
            (self.folder / "manifest.json").write_text(json.dumps({"recalls": recalls, "metrics": [{}, {}]}))
            return StageReport("compare", self.folder, "")

        return promote("shop", self.uri, {}, compared, lambda _: Rsum(60.0, 50.0, 70.0, chance=40.0)).promoted

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of the command line; returns what it wrote to the terminal."""
        self._capsys.readouterr()
        assert guarded(partial(COMMANDS[command], list(arguments))) == 0
        return "".join(self._capsys.readouterr())


class Service:
    """The serve command as a process, and the lines that it writes."""

    def __init__(self, cluster: str, *arguments: str) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, str(SERVE), "--port", str(self.port), *arguments],
            env=os.environ | {"RAY_ADDRESS": cluster}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def wait_for(self, words: str) -> None:
        """Wait until a line has these words."""
        end = time.monotonic() + 100
        while not any(words in line for line in list(self.lines)):
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.1)

    def search(self) -> tuple[int, list[str] | str]:
        """Return the status, and the model that answers with what it finds."""
        body = b'{"text": "a red ring", "k": 6, "target": "images"}'
        status, text = ask(self.port, "POST", "/search", body, {"Content-Type": "application/json"})
        answer = json.loads(text)
        return (status, answer["model"]) if status == 200 else (status, text)

    def kill_replicas(self) -> None:
        """Kill the processes of the model."""
        processes = replicas()
        assert processes
        for process in processes:
            os.kill(process, signal.SIGKILL)
        while not set(processes).isdisjoint(replicas()):
            time.sleep(0.05)

    def stop(self) -> int:
        """Interrupt it, if it still runs; returns its exit status."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(60)
        self._reader.join()
        return status


def replicas() -> list[int]:
    """The processes with the model of this session's cluster."""
    found, mine = [], os.environ["RAY_AUTH_TOKEN"].encode()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(b"ray::ServeReplica:vse-"):
                found += [int(folder.name)] if mine in (folder / "environ").read_bytes() else []
    return found


@contextlib.contextmanager
def clients(service: Service, number: int = 4) -> Iterator[Counter[Any]]:
    """Ask again and again within a ``with`` statement; counts the answers."""
    answers: Counter[Any] = Counter()
    stopped = threading.Event()

    def keep_asking() -> None:
        while not stopped.is_set():
            try:
                answer = service.search()
            except OSError as error:
                answer = 0, repr(error)
            answers[answer] += 1

    threads = [threading.Thread(target=keep_asking) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def shop(work_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shop:
    monkeypatch.setenv("VSE_WORK_DIR", str(work_dir))
    monkeypatch.setenv("COLUMNS", "300")
    shop = Shop(work_dir, capsys)
    assert shop.register(seed=1)
    (shop.folder / "photos").mkdir()
    for number in range(3):
        load_image(f"scene://0/{number}").save(shop.folder / "photos" / f"{number}.png")
    found = shop.run("index", "--model", "shop", "--images", str(shop.folder / "photos"), "--name", "holiday")
    assert "shop: shop/1, the champion" in found
    return shop


@pytest.fixture
def serve(ray_cluster: str) -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(*arguments: str) -> Service:
        started.append(Service(ray_cluster, *arguments))
        started[0].wait_for("is served at")
        return started[0]

    yield start
    started[0].stop()


@pytest.mark.nightly  # more than a minute
def test_each_goes_on_with_its_version(shop: Shop, serve: Callable[..., Service]) -> None:
    service = serve("--model", "shop", "--follow", "--replicas", "2")
    assert not shop.register(seed=2)  # newer, and not better
    with clients(service) as answers:
        service.kill_replicas()
    assert set(answers) == {(200, "shop/1")}  # those that it had begun, too
    assert "now means" not in shop.run("search", "--gallery", "holiday", "a red ring")

    with clients(service) as answers:
        assert shop.register(seed=3, difference=5.0)
        service.wait_for("shop/3 is served now, in place of shop/1")
    assert set(answers) <= {(200, "shop/1"), (200, "shop/3")}
    assert service.search() == (200, "shop/3")
    assert service.stop() == 0

    news = "shop/1 is used; shop now means shop/3, the champion"
    found = shop.run("search", "--gallery", "holiday", "a red ring")
    assert f"holiday: {news}; to index the images again with it: {REINDEX}\n" in found
    assert "2.png" in found
    exported = shop.run("export", "--model", "shop/1", "--output", str(shop.folder / "exported"), "--dry-run")
    assert f"{news}\nwould export shop/1 to" in exported
    assert "shop: shop/3, the champion" in shop.run("search", "--model", "shop", "a red ring")


@pytest.mark.nightly
def test_a_gallery_is_followed_by_one_process_which_keeps_what_it_has(
    shop: Shop, serve: Callable[..., Service]
) -> None:
    service = serve("--gallery", "holiday", "--follow")
    assert shop.register(seed=2, difference=5.0)
    service.wait_for("holiday: shop/1 is used; shop now means shop/2, the champion; to index the images again")
    with clients(service) as answers:
        shop.run("index", "--name", "holiday", "--model", "shop")
        service.wait_for("holiday, indexed with shop/2, is served now, in place of holiday, indexed with shop/1,")
    assert {(status, model.partition("/")[0]) for status, model in answers} == {(200, "holiday")}
    assert len(set(answers)) == 2, "answers name the version of the gallery"

    _, bundle = find_bundle("shop/2", shop.uri)
    shutil.rmtree(bundle / "model")
    (shop.gallery / "gallery.json").touch()  # as after an update
    service.wait_for("holiday, indexed with shop/2, cannot be loaded, holiday, indexed with shop/2, stays: ")
    assert service.search() in answers
    assert service.stop() == 0
