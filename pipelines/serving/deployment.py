"""The model on Ray Serve: its replicas, how they are replaced, and the ingress of a RayService."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from pydantic import BaseModel, ConfigDict, PositiveInt
from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from pipelines.plugins import plugin_variable
from pipelines.registry.models import pin
from pipelines.retrieval.options import default_tracking_uri
from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.logs import configure_worker, log_choices
from pipelines.runtime.stage import StageError
from pipelines.serving import limits
from pipelines.serving.app import Ask, build_app
from pipelines.serving.guard import TOKEN_VARIABLE, Guard, is_loopback, read_token
from pipelines.serving.replica import SearchReplica
from pipelines.serving.request_error import RequestError
from pipelines.serving.rollout import Replicas, Scale, State

APPLICATION = "vse-search"

# A new version: one replica more is started before one is stopped, which answers what it has begun.
_REPLACEMENT: dict[str, Any] = {
    "max_surge_percent": 1,
    "graceful_shutdown_timeout_s": limits.ANSWER_SECONDS,
    "graceful_shutdown_wait_loop_s": 0.1,
}
_LOGGING = {"log_level": "WARNING", "enable_access_log": False}


class Ingress:
    """The application behind Ray Serve's own proxies, for a RayService."""

    def __init__(self, replicas: DeploymentHandle, replica_count: int) -> None:
        self._replicas = replicas
        self._replica_count = replica_count

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Build the application; Ray Serve asks for it. The token comes from the environment of the process."""
        configure_worker("serve", "", "info")
        token = read_token("0.0.0.0", os.environ.get(TOKEN_VARIABLE))
        return Guard(build_app(asking(self._replicas)), token, None, self._replica_count)


class ServiceArguments(BaseModel):
    """The `args` of the application in the configuration of a RayService; see infra/kubernetes/rayservice.yaml."""

    model_config = ConfigDict(extra="forbid")

    model: str
    tracking_uri: str | None = None
    max_replicas: PositiveInt = 1


def application(arguments: ServiceArguments) -> serve.Application:
    """Build the application of a RayService, `ingress` over `search`; a name is resolved once for all replicas."""
    tracking_uri = arguments.tracking_uri or default_tracking_uri()
    replicas = search_deployment(Scale()).bind(pin(arguments.model, tracking_uri), tracking_uri)
    ingress = serve.deployment(serve.ingress()(Ingress)).options(
        name="ingress",
        max_ongoing_requests=limits.MAX_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        **_REPLACEMENT,
    )
    return ingress.bind(replicas, arguments.max_replicas)


def search_deployment(scale: Scale) -> serve.Deployment:
    """Return the deployment of the replicas: a fixed number, or what the load needs up to `most`."""
    scaling: dict[str, Any] = {"num_replicas": scale.replicas}
    if scale.most > scale.replicas:
        # A replica that works on half of what it takes at a time is busy.
        half = limits.PER_REPLICA / 2
        autoscaling = {"min_replicas": scale.replicas, "max_replicas": scale.most, "target_ongoing_requests": half}
        scaling = {"autoscaling_config": autoscaling}
    variables = ray_internals.SERVE_SETTINGS | cluster.KEEP_MEMORY | plugin_variable() | log_choices()
    return serve.deployment(SearchReplica).options(
        name="search",
        max_ongoing_requests=limits.MAX_REQUESTS,  # the guard admits fewer
        health_check_period_s=1,  # Ray Serve finds out so that a replica has ended
        **_REPLACEMENT,
        ray_actor_options={"num_gpus": scale.gpus, "runtime_env": {"env_vars": variables}},
        logging_config=_LOGGING,
        **scaling,
    )


def asking(handle: DeploymentHandle) -> Ask:
    """Return a function that calls a method of a replica, and once more of another if the replica ends meanwhile."""

    async def ask(method: str, *arguments: Any) -> Any:
        try:
            try:
                return await handle.ask.remote(method, *arguments)
            except RayActorError:
                return await handle.ask.remote(method, *arguments)
        except RayTaskError:
            raise  # an error of our own
        except (RayError, RayServeException) as error:
            message = "the service is being started or stopped; try again in a moment"
            raise RequestError(503, message, {"Retry-After": "1"}) from error

    return ask


@contextmanager
def replicas_on_ray(model: str, tracking_uri: str, scale: Scale) -> Iterator[Replicas]:
    """Run the replicas of a model on Ray Serve within a ``with`` statement, which begins when all of them answer."""

    def deploy(model: str, wait: bool = False) -> DeploymentHandle:
        """Start the replicas, or replace those there are one by one."""
        replicas = search_deployment(scale).bind(model, tracking_uri)
        target = serve.RunTarget(replicas, name=APPLICATION, route_prefix=None)
        try:
            return serve.run_many([target], wait_for_applications_running=wait)[0]
        except RuntimeError as error:
            raise StageError(f"the service does not start: {_last_line(str(error))}") from error

    was_connected = cluster.is_connected()
    is_ours = not (was_connected or os.environ.get("RAY_ADDRESS"))
    os.environ.update(ray_internals.SERVE_SETTINGS)
    try:
        cluster.connect(None)
        _require_authentication()
        _require_no_serve()
        _require_room(scale)
        try:
            # Ray Serve's lines about its start and each request would hide errors.
            logging.getLogger("ray.serve").setLevel(logging.WARNING)
            # Its proxies take longer for a request than the model.
            serve.start(proxy_location="Disabled", logging_config=_LOGGING)
            yield Replicas(asking(deploy(model, wait=True)), deploy, _state, go_back=deploy)
        finally:
            if not is_ours:  # else it ends with the cluster
                serve.shutdown()
    finally:
        if not was_connected:
            cluster.disconnect()


def _state() -> State:
    try:
        running = serve.status().applications.get(APPLICATION)
    except RayError:  # Ray starts its controller again; the replicas continue
        return State(answering=1, is_settled=False, failure="")
    if running is None or "search" not in running.deployments:
        raise StageError("the service was ended by another program: Ray Serve does not know it any more")
    replicas = running.deployments["search"]
    has_failed = replicas.status_trigger == "REPLICA_STARTUP_FAILED"
    failure = _last_line(replicas.message) if has_failed else ""
    return State(replicas.replica_states.get("RUNNING", 0), running.status == "RUNNING", failure)


def _require_authentication() -> None:
    """Refuse a Ray that other machines reach and that asks for no token: its processes unpickle what they are sent."""
    addresses = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    reachable = [address for address in addresses if not is_loopback(address)]
    if reachable and not ray_internals.requires_token():
        raise StageError(
            f"Ray listens at {', '.join(reachable)} without a token (RAY_AUTH_MODE=disabled): whoever reaches a port "
            "of it runs code in the service. Unset RAY_AUTH_MODE, or set it to token where Ray is started and here"
        )


def _require_no_serve() -> None:
    """Refuse a cluster on which Ray Serve runs: ending this service would end the others."""
    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return
    raise StageError("Ray Serve runs on this cluster already: end it (serve shutdown), or use another cluster")


def _require_room(scale: Scale) -> None:
    """Refuse more replicas than CPU cores or GPUs: Ray Serve would wait for them forever."""
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
