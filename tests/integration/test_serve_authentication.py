"""A real Ray Serve with a token, and a Ray without one: nothing is answered or started that should not be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipelines.serving import serve
from tests.integration.test_serve import ask
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

TOKEN = "a token of some length"


def test_a_service_with_a_token_answers_nobody_else(ray_cluster: str, tmp_path: Path) -> None:
    bundle, port = write_tiny_bundle(tmp_path / "bundle"), free_port()
    with serve.serving(str(bundle), "unused", "127.0.0.1", port, TOKEN):
        for path in ("/model", "/nope"):
            status, body = ask(port, "GET", path)
            assert (status, list(json.loads(body))) == (401, ["error"])
        assert ask(port, "GET", "/health")[0] == 200
        with_token = {"Authorization": f"Bearer {TOKEN}"}
        body = b'{"text": "a red ring", "k": 2}'
        assert ask(port, "POST", "/search", body, with_token | {"Content-Type": "application/json"})[0] == 200


REFUSED = """
import ray
from pipelines.runtime.stage import StageError
from pipelines.serving import serve
try:
    with serve.serving("unused", "unused", "127.0.0.1", 1):
        raise SystemExit("it serves")
except StageError as error:
    print(error)
"""


def test_a_ray_without_a_token_serves_nothing() -> None:
    """Every process of Ray listens on all addresses, and runs what it is sent."""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "RAY_AUTH_MODE": "disabled", "PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", REFUSED], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "without a token (RAY_AUTH_MODE=disabled)" in run.stdout
