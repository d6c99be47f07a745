"""A real Ray Serve with a token, and a Ray without one: nothing is answered or started that should not be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ray import serve as ray_serve

from pipelines.serving import running
from pipelines.serving.deployment import ServiceArguments, application
from pipelines.serving.guard import TOKEN_VARIABLE
from tests.integration.test_serve import ask
from tests.pipelines.serving.bad_requests import FORM, encoded, form
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

TOKEN = "a token of some length"


def test_a_service_with_a_token_answers_nobody_else(ray_cluster: str, tmp_path: Path) -> None:
    bundle, port = write_tiny_bundle(tmp_path / "bundle"), free_port()
    with running.serving(str(bundle), "unused", "127.0.0.1", port, TOKEN):
        for path in ("/model", "/nope"):
            status, body = ask(port, "GET", path)
            assert (status, list(json.loads(body))) == (401, ["error"])
        assert ask(port, "GET", "/health")[0] == 200
        with_token = {"Authorization": f"Bearer {TOKEN}"}
        body = b'{"text": "a red ring", "k": 2}'
        assert ask(port, "POST", "/search", body, with_token | {"Content-Type": "application/json"})[0] == 200


def test_a_ray_service_is_the_same_application_behind_ray_serves_proxy(ray_cluster: str, tmp_path: Path) -> None:
    arguments = ServiceArguments(model=str(write_tiny_bundle(tmp_path / "bundle")), tracking_uri="unused")
    ingress, port = application(arguments)._bound_deployment, free_port()
    # On Kubernetes the token is in the environment of every process.
    pod = {"num_cpus": 0, "runtime_env": {"env_vars": {TOKEN_VARIABLE: TOKEN}}}
    try:
        ray_serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        ray_serve.run(ingress.options(ray_actor_options=pod).bind(*ingress.init_args))
        assert ask(port, "GET", "/model")[0] == 401
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        status, body = ask(port, "POST", "/search", b'{"text": "a red ring", "k": 2}', headers)
        assert (status, len(json.loads(body)["results"])) == (200, 2)
        status, body = ask(port, "POST", "/search/image?k=3", form(encoded("PNG")), headers | FORM)
        assert (status, len(json.loads(body)["results"])) == (200, 3)
    finally:
        ray_serve.shutdown()


REFUSED = """
import ray
from pipelines.runtime.stage import StageError
from ray import serve as ray_serve

from pipelines.serving import running
from pipelines.serving.deployment import ServiceArguments, application
from pipelines.serving.guard import TOKEN_VARIABLE
from pipelines.serving.rollout import Scale
try:
    with running.serving("unused", "unused", "127.0.0.1", 1, scale=Scale(2)):
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
