"""S3 servers for tests, on free ports: Moto in this process, or OpenStack Swift from Debian's packages."""

from __future__ import annotations

import getpass
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from tests.integration.debian import require
from tests.ports import free_port

ACCESS_KEY, SECRET_KEY, REGION = "test:tester", "secret-of-the-tester", "us-east-1"  # as in swift_server.py

on_swift = pytest.mark.parametrize("s3_server", [pytest.param("swift", marks=pytest.mark.nightly)], indirect=True)
"""A test of what only a real server does, such as looking at keys and checksums."""

_PACKAGES = ("swift-proxy", "swift-account", "swift-container", "swift-object", "memcached")
_START_SECONDS = 240.0
_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class S3Server:
    """A running server: its kind, and the port of the S3 API on 127.0.0.1."""

    kind: str
    port: int

    @property
    def endpoint(self) -> str:
        """The address for AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running(kind: str, folder: Path) -> Iterator[S3Server]:
    """Run a server, `moto` or `swift`, for the block.

    Raises:
        UnavailableError: Swift is not installed and cannot be.
    """
    if kind == "swift":
        with _swift(folder) as server:
            yield server
        return
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    try:
        yield S3Server(kind, moto.get_host_and_port()[1])
    finally:
        moto.stop()


@contextmanager
def _swift(folder: Path) -> Iterator[S3Server]:
    require(("swift-proxy-server", "memcached"), _PACKAGES)
    port_file = folder / "port"
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
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not port_file.exists():
            if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
                raise RuntimeError(f"Swift has not started: {(folder / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield S3Server("swift", int(port_file.read_text()))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
