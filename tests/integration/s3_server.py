"""A real S3 server for tests: OpenStack Swift from Debian's packages, on free ports, ended by its process ids."""

from __future__ import annotations

import getpass
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.debian import require
from tests.ports import free_port

ACCESS_KEY, SECRET_KEY, REGION = "test:tester", "secret-of-the-tester", "us-east-1"  # as in swift_server.py

_PACKAGES = ("swift-proxy", "swift-account", "swift-container", "swift-object", "memcached")
_START_SECONDS = 240.0
_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Swift:
    """A running server.

    Attributes:
        port: of the S3 API on 127.0.0.1.
        processes: of its own.
    """

    port: int
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def endpoint(self) -> str:
        """The address for AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End the server, and wait for its end."""
        _stop(self.processes)


def start(folder: Path) -> Swift:
    """Start a server over a folder, whose contents it keeps, and wait until it answers.

    Raises:
        UnavailableError: it is not installed and cannot be.
    """
    require(("swift-proxy-server", "memcached"), _PACKAGES)
    folder.mkdir(parents=True, exist_ok=True)
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    memcached = str(free_port())
    # Debian's Python must not see the packages of ours.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONWARNINGS": "ignore"}
    commands = (
        ["memcached", "-l", "127.0.0.1", "-p", memcached, "-m", "16", "-u", getpass.getuser()],
        [_PYTHON, str(Path(__file__).with_name("swift_server.py")), str(folder), memcached],
    )
    with (folder / "log").open("wb") as log:
        processes = tuple(
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            for command in commands
        )
    deadline = time.monotonic() + _START_SECONDS
    while not port_file.exists():
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            _stop(processes)
            raise RuntimeError(f"Swift has not started: {(folder / 'log').read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return Swift(int(port_file.read_text()), processes)


def _stop(processes: tuple[subprocess.Popen[bytes], ...]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
