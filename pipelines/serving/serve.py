"""The serve command: a registered model behind a search page and its interface, as a Ray Serve application."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.retrieval.search_model import add_model_options, default_tracking_uri
from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.cli import CommandParser, number_in
from pipelines.runtime.stage import StageError
from pipelines.serving.guard import TOKEN_VARIABLE, Guard, is_loopback, read_token

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle

APPLICATION = "vse-search"

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def main() -> None:
    """Read the command line, and serve until interrupted."""
    from pipelines.registry.models import find_bundle

    options = _parsed()
    # Out of the environment, which every process of Ray would inherit.
    token = read_token(options.host, os.environ.pop(TOKEN_VARIABLE, None))
    tracking_uri = options.tracking_uri or default_tracking_uri()
    model, _ = find_bundle(options.model, tracking_uri)
    interrupted = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: interrupted.set())
    scale = {"replicas": options.replicas, "max_replicas": options.max_replicas, "gpus": options.gpus_per_replica}
    with serving(model, tracking_uri, options.host, options.port, token, **scale):
        host = f"[{options.host}]" if ":" in options.host else options.host
        sys.stdout.write(f"{model} is served at http://{host}:{options.port}/ (end with Ctrl-C)\n")
        sys.stdout.flush()
        interrupted.wait()


@contextmanager
def serving(
    model: str,
    tracking_uri: str,
    host: str,
    port: int,
    token: str | None = None,
    *,
    replicas: int = 1,
    max_replicas: int = 1,
    gpus: float = 0,
) -> Iterator[int]:
    """Serve a model (NAME/VERSION, or a bundle's directory) within a ``with`` statement, which begins when it answers.

    The application runs in this process, and calls the replicas of the model. The statement is given the port.

    Clients carry the token, if any; up to `max_replicas` processes with the model are started where the load needs
    them, each with a share of a GPU.
    """
    from pipelines.serving.http_server import bound, listening

    # An address that is taken is told before Ray and the model are started.
    with bound(host, port) as listener, _ray() as is_ours:
        from ray import serve

        from pipelines.serving import deployment
        from pipelines.serving.app import build_app

        _require_authentication()
        _require_no_serve()
        _require_room(replicas, gpus)
        try:
            handle = _deploy(deployment.search_deployment(replicas, max_replicas, gpus).bind(model, tracking_uri))
            hosts = _LOOPBACK_NAMES if is_loopback(host) and token is None else None
            app = Guard(build_app(deployment.asking(handle)), token, hosts, max(replicas, max_replicas))
            with listening(app, listener) as found_port:
                yield found_port
        finally:
            if not is_ours:  # else it ends with the cluster
                serve.shutdown()


@contextmanager
def _ray() -> Iterator[bool]:
    """Be connected to Ray within a ``with`` statement, which is told whether the cluster is started and ended here."""
    was_connected, address = cluster.is_connected(), os.environ.get("RAY_ADDRESS") or None
    os.environ.update(ray_internals.SERVE_SETTINGS)
    try:
        if not was_connected:
            cluster.join_or_start(address)
        yield not (was_connected or address)
    finally:
        if not was_connected:
            cluster.disconnect()


def _deploy(application: Application) -> DeploymentHandle:
    """Start Ray Serve without its proxies, which take longer for a request than the model, and the replicas."""
    from ray import serve

    # Ray Serve's lines about its start and each request would hide errors.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING", "enable_access_log": False})
        return serve.run(application, name=APPLICATION, route_prefix=None)
    except RuntimeError as error:
        raise StageError(f"the service does not start: {_last_line(error)}") from error


def _require_authentication() -> None:
    """Refuse a Ray that other machines reach and that asks for no token: its processes unpickle what they are sent."""
    import ray

    addresses = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    reachable = [address for address in addresses if not is_loopback(address)]
    if reachable and not ray_internals.requires_token():
        raise StageError(
            f"Ray listens at {', '.join(reachable)} without a token (RAY_AUTH_MODE=disabled): whoever reaches a port "
            "of it runs code in the service. Unset RAY_AUTH_MODE, or set it to token where Ray is started and here"
        )


def _require_no_serve() -> None:
    """Refuse a cluster on which Ray Serve runs: ending this service would end the others."""
    import ray

    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return
    raise StageError("Ray Serve runs on this cluster already: end it (serve shutdown), or use another cluster")


def _require_room(replicas: int, gpus: float) -> None:
    """Refuse more replicas than CPU cores or GPUs: Ray Serve would wait for them forever."""
    import ray

    has = ray.cluster_resources()
    for needed, kind in ((replicas, "CPU"), (replicas * gpus, "GPU")):
        if needed > has.get(kind, 0):
            raise StageError(
                f"--replicas {replicas} need {needed:g} {kind}s, and Ray has {has.get(kind, 0):g}: use fewer"
            )


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


def _parsed() -> argparse.Namespace:
    parser = CommandParser(prog="serve.py")
    add_model_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help=f"address to listen at; others need {TOKEN_VARIABLE}")
    parser.add_argument("--port", type=number_in(int, 1, 65535), default=8000, help="port to listen at (default 8000)")
    parser.add_argument("--replicas", type=number_in(int, 1), default=1, help="processes with the model (default 1)")
    parser.add_argument(
        "--max-replicas", type=number_in(int, 1), default=1, help="start up to as many where the load needs them"
    )
    parser.add_argument(
        "--gpus-per-replica", type=number_in(float, 0, 1), default=0, help="share of a GPU for each (default 0)"
    )
    return parser.parse_args()
