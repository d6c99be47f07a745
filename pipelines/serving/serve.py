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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines.retrieval.search_model import add_model_options, default_tracking_uri
from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.cli import CommandParser, number_in, say
from pipelines.runtime.stage import StageError
from pipelines.serving.guard import TOKEN_VARIABLE, Guard, is_loopback, read_token

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from pipelines.serving.rollout import Served, State

APPLICATION = "vse-search"

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Scale(NamedTuple):
    """Processes with the model: their number, the most if the load needs them, the GPUs of each, and room for others.

    `spare` more find room, as one is started before another is stopped.
    """

    replicas: int = 1
    max_replicas: int = 1
    gpus: float = 0
    spare: int = 0


_ONE_REPLICA = Scale()


def main() -> None:
    """Read the command line, and serve until interrupted."""
    from pipelines.registry.models import find_bundle, pin
    from pipelines.serving.rollout import Rollout, find_served

    options = _parsed()
    # Out of the environment, which every process of Ray would inherit.
    token = read_token(options.host, os.environ.pop(TOKEN_VARIABLE, None))
    tracking_uri = options.tracking_uri or default_tracking_uri()
    served = find_served(pin(options.model, tracking_uri), tracking_uri)
    find_bundle(served.version, tracking_uri)  # what is wrong with it is told before Ray is started
    follows = _followed(options.model, served) if options.follow else None
    interrupted = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: interrupted.set())
    scale = Scale(options.replicas, options.max_replicas, options.gpus_per_replica, spare=int(options.follow))
    with serving(served.model, tracking_uri, options.host, options.port, token, scale):
        host = f"[{options.host}]" if ":" in options.host else options.host
        say(f"{served.title} is served at http://{host}:{options.port}/ (end with Ctrl-C)")
        sys.stdout.flush()
        Rollout(
            served, lambda other: _deploy(other.model, tracking_uri, scale, wait=False), _state, tracking_uri, follows
        ).watch(interrupted)


def _followed(reference: str, served: Served) -> str:
    """Return the reference whose meaning may change; StageError if it always means the same."""
    if served.revision:
        return served.model
    if Path(served.model).is_absolute() or served.model == reference.removeprefix("models:/"):
        raise StageError(f"--follow: {reference} always means the same: give NAME, NAME@ALIAS or --gallery")
    return reference


@contextmanager
def serving(
    model: str, tracking_uri: str, host: str, port: int, token: str | None = None, scale: Scale = _ONE_REPLICA
) -> Iterator[int]:
    """Serve a model (NAME/VERSION, or a bundle's directory) within a ``with`` statement, which begins when it answers.

    The application runs in this process, and calls the replicas of the model. The statement is given the port. Clients
    carry the token, if any.
    """
    from pipelines.serving.http_server import bound, listening

    # An address that is taken is told before Ray and the model are started.
    with bound(host, port) as listener, _ray() as is_ours:
        from ray import serve

        from pipelines.serving import deployment
        from pipelines.serving.app import build_app

        _require_authentication()
        _require_no_serve()
        _require_room(scale)
        try:
            # Ray Serve's lines about its start and each request would hide errors.
            logging.getLogger("ray.serve").setLevel(logging.WARNING)
            # Its proxies take longer for a request than the model.
            serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING", "enable_access_log": False})
            handle = _deploy(model, tracking_uri, scale)
            hosts = _LOOPBACK_NAMES if is_loopback(host) and token is None else None
            most = max(scale.replicas, scale.max_replicas)
            app = Guard(build_app(deployment.asking(handle)), token, hosts, most)
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


def _deploy(model: str, tracking_uri: str, scale: Scale, wait: bool = True) -> DeploymentHandle:
    """Start the replicas of a model, or replace those there are one by one; `wait` until all of them answer."""
    from ray import serve

    from pipelines.serving.deployment import search_deployment

    replicas = search_deployment(scale.replicas, scale.max_replicas, scale.gpus)
    target = serve.RunTarget(replicas.bind(model, tracking_uri), name=APPLICATION, route_prefix=None)
    try:
        return serve.run_many([target], wait_for_applications_running=wait)[0]
    except RuntimeError as error:
        raise StageError(f"the service does not start: {_last_line(str(error))}") from error


def _state() -> State:
    """Return the state of the replicas."""
    from ray import serve
    from ray.exceptions import RayError

    from pipelines.serving.rollout import State

    try:
        application = serve.status().applications.get(APPLICATION)
    except RayError:  # Ray starts its controller again; the replicas go on
        return State(answering=1, is_settled=False, failure="")
    if application is None or "search" not in application.deployments:
        raise StageError("the service was ended by another program: Ray Serve does not know it any more")
    replicas = application.deployments["search"]
    has_failed = replicas.status_trigger == "REPLICA_STARTUP_FAILED"
    failure = _last_line(replicas.message) if has_failed else ""
    return State(replicas.replica_states.get("RUNNING", 0), application.status == "RUNNING", failure)


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


def _require_room(scale: Scale) -> None:
    """Refuse more replicas than CPU cores or GPUs: Ray Serve would wait for them forever."""
    import ray

    has, number = ray.cluster_resources(), scale.replicas + scale.spare
    more = ", and --follow one more while it replaces one," if scale.spare else ""
    for needed, kind in ((number, "CPU"), (number * scale.gpus, "GPU")):
        if needed > has.get(kind, 0):
            raise StageError(
                f"--replicas {scale.replicas}{more} need {needed:g} {kind}s, "
                f"and Ray has {has.get(kind, 0):g}: use fewer"
            )


def _last_line(message: str) -> str:
    return message.strip().rpartition("\n")[2]


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
    follow = "take up a new champion, or a gallery that was indexed again, while the service runs"
    parser.add_argument("--follow", action="store_true", help=follow)
    return parser.parse_args()
