"""Serving from the command line: to this machine alone, or with a token."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import ray
import torch

from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.stage import StageError
from pipelines.serving import deployment, guard, running
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

TOKEN = "a token of some length"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_loopback_needs_no_token(host: str) -> None:
    assert guard.read_token(host, None) is None
    assert guard.read_token(host, "") is None
    assert guard.read_token(host, TOKEN) == TOKEN


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.3", "example.com", "localhost.example.com", ""])
def test_any_other_address_does(host: str) -> None:
    with pytest.raises(StageError, match="can be reached from other machines: set VSE_SERVE_TOKEN"):
        guard.read_token(host, None)
    assert guard.read_token(host, TOKEN) == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_short_token_is_refused(host: str) -> None:
    with pytest.raises(StageError, match="VSE_SERVE_TOKEN has 6 characters; use 16 at least"):
        guard.read_token(host, "secret")


def nodes(*addresses: str) -> list[dict[str, object]]:
    return [{"NodeManagerAddress": address, "Alive": True} for address in addresses]


@pytest.mark.parametrize("addresses", [("10.0.0.3",), ("127.0.0.1", "10.0.0.3"), ("fd00::2",)])
def test_a_ray_that_others_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*addresses))
    monkeypatch.setattr(ray_internals, "requires_token", lambda: True)
    deployment._require_authentication()
    monkeypatch.setattr(ray_internals, "requires_token", lambda: False)
    with pytest.raises(StageError, match=f"Ray listens at {addresses[-1]} without a token .RAY_AUTH_MODE=disabled"):
        deployment._require_authentication()
    monkeypatch.setattr(ray, "nodes", lambda: nodes("127.0.0.1"))
    deployment._require_authentication()


def test_an_address_that_cannot_be_had_is_told_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connect", lambda _: pytest.fail("Ray was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for host, reason in (("127.0.0.1", "Address already"), ("203.0.113.9", "Cannot assign"), ("a" * 70, "")):
            message = rf"cannot listen at {host}, port {port}: {reason}.*; use another --port or --host"
            with pytest.raises(StageError, match=message), running.serving("unused", "unused", host, port):
                pass


@pytest.mark.parametrize("has_gpu", [False, True])
def test_triton_is_loaded_for_a_gpu_alone(has_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, model = [], str(write_tiny_bundle(tmp_path / "bundle"))

    @contextmanager
    def serving(*_: object) -> Iterator[None]:
        found.append(find_spec("triton") is not None)
        raise StageError("served")
        yield

    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setitem(sys.modules, "triton", sys)  # what the service puts there is taken back, too
    del sys.modules["triton"]
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(running, "serving", serving)
    scale = {"replicas": 1, "max_replicas": 1, "gpus_per_replica": 0.0}
    options = Namespace(model=model, tracking_uri="unused", follow=False, host="127.0.0.1", port=1, **scale)
    with pytest.raises(StageError, match="served"):
        running.run(options, None)
    assert found == [has_gpu]


def test_one_replica_is_this_process_and_a_new_version_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be loaded changes nothing."""
    monkeypatch.setattr(cluster, "connect", lambda _: pytest.fail("Ray was started"))
    first, second = (write_tiny_bundle(tmp_path / name, seed) for seed, name in enumerate(("first", "second")))
    port = free_port()

    def served() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/model", timeout=60) as answer:
            return str(json.load(answer)["model"])

    with running.serving(str(first), "unused", "127.0.0.1", port) as replicas:
        assert (served(), replicas.state()) == ("first", (1, True, ""))
        for model, name, reason in ((second, "second", ""), (tmp_path / "absent", "second", "holds no model")):
            replicas.deploy(str(model))
            while not replicas.state().is_settled:
                time.sleep(0.05)
            assert served() == name
            assert bool(reason) == bool(replicas.state().failure)
            assert reason in replicas.state().failure
