"""Seam "pressure": clients that never end a request, or never stop, while others are answered and memory is flat."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.integration.test_serve import ask, search
from tests.pipelines.serving.bad_requests import FORM, JSON, encoded, form
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
DESCRIPTORS = 1024  # what most machines allow a process
SLOW = 1200
SLOW_PAUSE = 2.0  # seconds between two bytes of a slow client

HEAD = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = b"Content-Length: 9000\r\n\r\n{"
# A head, a body, and the body of a request that is refused at once: none of them ends.
BEGUN = (HEAD + b"X: ", HEAD + BODY, HEAD.replace(b"127.0.0.1", b"example.com") + BODY)


class Service:
    """The serve command as a user starts it."""

    def __init__(self, bundle: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "pipelines/serve.py", "--model", str(bundle), "--port", str(self.port)]
        # Nobody reads the log of requests, which would fill the pipe.
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environment["VSE_LOG_LEVEL"] = "warning"
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline()]
        while "is served at" not in lines[-1]:
            assert lines[-1], lines
            lines.append(self.process.stdout.readline())
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, most))
        self._command = psutil.Process(self.process.pid)

    def megabytes(self) -> float:
        """Resident memory of the command, which has the model."""
        return round(self._command.memory_info().rss / 1e6, 1)

    def descriptors(self) -> int:
        return self._command.num_fds()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(write_tiny_bundle(tmp_path_factory.mktemp("pressure") / "bundle"))
    for _ in range(100):  # what is imported and cached at first
        assert search(service.port)[0] == 200
    yield service
    if service.process.poll() is None:
        os.killpg(service.process.pid, signal.SIGINT)
        service.process.communicate(timeout=60)


@contextlib.contextmanager
def others_are_answered(service: Service) -> Iterator[None]:
    """One client searches ten times a second; all its searches are answered, and not a few alone."""
    answers, stopped = [], threading.Event()

    def keep_asking() -> None:
        while not stopped.wait(0.1):
            started = time.monotonic()
            status = search(service.port)[0]
            answers.append((time.monotonic() - started, status))

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(keep_asking)
        try:
            yield
        finally:
            stopped.set()
        asking.result()
    seconds = sorted(took for took, _ in answers)
    print(f"{len(answers)} searches, median {seconds[len(seconds) // 2]:.3f} s, longest {seconds[-1]:.3f} s")
    assert {status for _, status in answers} == {200}
    assert len(answers) > 10


@contextlib.contextmanager
def flat_memory(service: Service, most: float) -> Iterator[None]:
    """The command takes no more memory afterwards than before, but for some megabytes."""
    before = service.megabytes()
    yield
    after = service.megabytes()
    print(f"memory of the command before {before} and after {after} MB")
    assert after - before < most


def slow_client(port: int, number: int) -> socket.socket:
    client = socket.socket()
    client.settimeout(5)
    client.bind((f"127.0.0.{1 + number % 3}", 0))
    client.connect(("127.0.0.1", port))
    client.sendall(BEGUN[number // 3 % 3])
    return client


def endless_head(port: int, until: float) -> Counter[str]:
    """Send a head without end, again when it is refused; returns how often, and the bytes."""
    found: Counter[str] = Counter()
    line = b"X-Long: " + b"a" * 8000 + b"\r\n"
    while time.monotonic() < until and found["refused"] < 50_000:
        with socket.create_connection(("127.0.0.1", port), 5) as client, contextlib.suppress(ConnectionError):
            client.sendall(HEAD)
            while time.monotonic() < until:
                found["bytes"] += client.send(line)
            return found
        found["refused"] += 1
    return found


def test_a_head_without_end_is_refused(service: Service) -> None:
    with flat_memory(service, 50), others_are_answered(service):
        found = endless_head(service.port, time.monotonic() + 4)
    print(found)
    assert found["refused"] > 10


def test_1200_sockets_that_send_a_byte_every_two_seconds(service: Service) -> None:
    """From three addresses, one of them the other client's. A connection that is closed is opened again at once."""
    end = time.monotonic() + 120
    with flat_memory(service, 70), contextlib.ExitStack() as stack, others_are_answered(service):
        clients = [stack.enter_context(slow_client(service.port, number)) for number in range(SLOW)]
        descriptors, opened_again = [service.descriptors()], 0
        while time.monotonic() < end:
            for number, client in enumerate(clients):
                try:
                    client.send(b" ")
                except OSError:
                    client.close()
                    clients[number] = stack.enter_context(slow_client(service.port, number))
                    opened_again += 1
                time.sleep(SLOW_PAUSE / SLOW)
            descriptors.append(service.descriptors())
    print(f"at most {max(descriptors)} descriptors, {opened_again} connections opened again")
    assert max(descriptors) < DESCRIPTORS - 100


def some_requests(port: int, count: int) -> Counter[int]:
    """One client in one connection: searches, images, pages, and what is refused."""
    requests = [
        ("POST", "/search", b'{"text": "a red ring", "k": 2}', JSON),
        ("GET", "/model", None, {}),
        ("POST", "/search/image?k=2", form(encoded("PNG")), FORM),
        ("GET", "/nope", None, {}),
        ("POST", "/search", b"{", JSON),
        ("POST", "/search", b"{" * 20_000, JSON),
        ("GET", "/page.js", None, {"X-Long": "a" * 66_000}),
    ]
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(count):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
            method, path, body, headers = requests[number % len(requests)]
            connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
    connection.close()
    return statuses


def test_20_000_requests(service: Service) -> None:
    some_requests(service.port, 140)
    with flat_memory(service, 50), ThreadPoolExecutor(4) as threads:
        started = time.monotonic()
        statuses = sum(threads.map(lambda _: some_requests(service.port, 5000), range(4)), Counter())
    print(f"{statuses} in {time.monotonic() - started:.0f} s")
    assert set(statuses) == {200, 400, 404, 413, 431}
    assert statuses.total() == 20_000


def test_ctrl_c_ends_a_service_under_load_in_time(service: Service) -> None:
    """A terminal sends the signal to every process of the foreground; clients keep asking, and one never finishes."""
    stopped = threading.Event()

    def keep_asking(_: int) -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(service.port, "GET", "/model")
            stopped.wait(0.01)

    with slow_client(service.port, 3), ThreadPoolExecutor(8) as threads:
        for number in range(8):
            threads.submit(keep_asking, number)
        time.sleep(2)
        started = time.monotonic()
        os.killpg(service.process.pid, signal.SIGINT)
        output, _ = service.process.communicate(timeout=60)
        took = time.monotonic() - started
        stopped.set()
    assert service.process.returncode == 0, output
    assert "failed to shut down" not in output
    assert "Traceback" not in output, output
    assert took < 30, output
