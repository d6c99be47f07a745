"""The serve command: a registered model behind a search page and its interface, as a Ray Serve application."""

from __future__ import annotations

import argparse
import ipaddress
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
from pipelines.runtime.cli import CommandParser
from pipelines.runtime.stage import StageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

TOKEN_VARIABLE = "VSE_SERVE_TOKEN"
APPLICATION = "vse-search"

_SHORTEST_TOKEN = 16
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
# In seconds, for the requests that are being answered when the service is stopped.
_LAST_ANSWERS = 3.0


class SearchServer:
    """The deployment: a model (NAME/VERSION, or the directory of a bundle) in a process of its own."""

    def __init__(self, model: str, tracking_uri: str) -> None:
        from pipelines.retrieval.search_model import load_search_model
        from pipelines.serving.service import SearchService

        self._service = SearchService(load_search_model(model, tracking_uri))
        self._service.warm_up()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Build the application that answers; Ray Serve asks for it."""
        from pipelines.serving.app import build_app

        return build_app(self._service)


def main() -> None:
    """Read the command line, and serve until interrupted."""
    options = _parsed()
    # Out of the environment, which every process of Ray would inherit.
    token = read_token(options.host, os.environ.pop(TOKEN_VARIABLE, None))
    tracking_uri = options.tracking_uri or default_tracking_uri()
    model = _one_version(options.model, tracking_uri)
    interrupted = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: interrupted.set())
    with serving(model, tracking_uri, options.host, options.port, token, options.replicas):
        host = f"[{options.host}]" if ":" in options.host else options.host
        sys.stdout.write(f"{model} is served at http://{host}:{options.port}/ (end with Ctrl-C)\n")
        sys.stdout.flush()
        interrupted.wait()


def read_token(host: str, token: str | None) -> str | None:
    """Return the token that clients of a service at an address have to carry; `token` is that of the environment.

    An address that other machines can reach needs a token; a short one is refused.
    """
    if token and len(token) < _SHORTEST_TOKEN:
        raise StageError(f"{TOKEN_VARIABLE} has {len(token)} characters; use {_SHORTEST_TOKEN} at least: {_MAKE_ONE}")
    if not token and not is_loopback(host):
        raise StageError(
            f"--host {host} can be reached from other machines: set {TOKEN_VARIABLE} to a token that clients have to "
            f"carry ({_MAKE_ONE}), and put TLS in front; or leave --host out"
        )
    return token or None


_MAKE_ONE = "make one by: openssl rand -hex 24"


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only; the one such name is "localhost"."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def serving(
    model: str, tracking_uri: str, host: str, port: int, token: str | None = None, replicas: int = 1
) -> Iterator[None]:
    """Serve a model (NAME/VERSION, or a bundle's directory) within a ``with`` statement, which begins when it answers.

    `token` is carried by clients, None if none is needed; `replicas` are processes with the model.
    """
    was_connected = cluster.is_connected()
    if not was_connected:
        cluster.join_or_start(os.environ.get("RAY_ADDRESS") or None)
    from ray import serve

    try:
        _require_authentication()
        _require_no_serve()
        _require_room(replicas)
        try:
            _deploy(model, tracking_uri, host, port, token, replicas)
            yield
        finally:
            serve.shutdown()
    finally:
        if not was_connected:
            cluster.disconnect()


def _deploy(model: str, tracking_uri: str, host: str, port: int, token: str | None, replicas: int) -> None:
    """Start Ray Serve and the deployment, and wait until it answers."""
    from ray import serve

    from pipelines.serving import proxy
    from pipelines.serving.guard import token_digest
    from pipelines.serving.limits import ANSWER_SECONDS, MAX_REQUESTS

    # Ray Serve's lines about its start and each request would hide errors.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = {"log_level": "WARNING", "enable_access_log": False}
    hosts = _LOOPBACK_NAMES if is_loopback(host) and token is None else None
    guard = proxy.settings(token_digest(token) if token else None, hosts, replicas)
    callback = ray_internals.proxy_environment(f"{proxy.__name__}:{proxy.middlewares.__name__}")
    deployment = serve.deployment(serve.ingress()(SearchServer)).options(
        name="search",
        num_replicas=replicas,
        max_ongoing_requests=MAX_REQUESTS,  # the guard admits fewer
        graceful_shutdown_timeout_s=_LAST_ANSWERS,
        graceful_shutdown_wait_loop_s=0.1,
        logging_config=quiet,
    )
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={
                "host": host,
                "port": port,
                "request_timeout_s": float(ANSWER_SECONDS),
                "keep_alive_timeout_s": ANSWER_SECONDS,
            },
            controller_options={"runtime_env": {"env_vars": guard | callback}},
            logging_config=quiet,
        )
        serve.run(deployment.bind(model, tracking_uri), name=APPLICATION, route_prefix="/")
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
    """Refuse a cluster on which Ray Serve runs: its address is fixed, and may be open to other machines."""
    import ray

    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return
    raise StageError("Ray Serve runs on this cluster already: end it (serve shutdown), or use another cluster")


def _require_room(replicas: int) -> None:
    """Refuse more replicas than CPU cores: Ray Serve would wait for them forever."""
    import ray

    cpus = ray.cluster_resources().get("CPU", 0)
    if replicas > cpus:
        raise StageError(f"--replicas {replicas} need a CPU core each, and Ray has {cpus:g}: use fewer")


def _one_version(reference: str, tracking_uri: str) -> str:
    """Return a name of the model that means the same version for every replica, whenever it starts."""
    from pipelines.registry.models import find_bundle, version_of

    name, bundle = find_bundle(reference, tracking_uri)
    if name == str(bundle):
        return str(bundle.absolute())
    registered, is_alias, _ = name.partition("@")
    return f"{registered}/{version_of(name, tracking_uri)}" if is_alias else name


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


def _parsed() -> argparse.Namespace:
    parser = CommandParser(prog="serve.py", description="Serve a registered model: a search page and its interface.")
    add_model_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help=f"address to listen at; others need {TOKEN_VARIABLE}")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at (default 8000)")
    parser.add_argument("--replicas", type=int, default=1, help="processes with the model (default 1)")
    options = parser.parse_args()
    if not 0 < options.port < 65536:
        parser.error(f"--port must be 1 to 65535, got {options.port}")
    if options.replicas < 1:
        parser.error(f"--replicas must be at least 1, got {options.replicas}")
    return options
