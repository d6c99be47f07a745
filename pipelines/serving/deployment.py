"""The model on Ray Serve: replicas that answer the searches which wait at the same time together, and the ingress."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PositiveInt
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from pipelines.plugins import plugin_variable
from pipelines.registry.models import pin
from pipelines.retrieval.search_model import Target, default_tracking_uri, load_search_model
from pipelines.runtime import cluster, ray_internals
from pipelines.serving import limits
from pipelines.serving.app import Replicas, build_app
from pipelines.serving.guard import TOKEN_VARIABLE, Guard, read_token
from pipelines.serving.request_error import RequestError
from pipelines.serving.service import Answer, ImageSearch, SearchService, TextSearch

Result = TypeVar("Result")

# A new version: one replica more is started before one is stopped, which answers what it has begun.
_REPLACEMENT: dict[str, Any] = {
    "max_surge_percent": 1,
    "graceful_shutdown_timeout_s": limits.ANSWER_SECONDS,
    "graceful_shutdown_wait_loop_s": 0.1,
}


class SearchReplica:
    """A model (NAME/VERSION, or the directory of a bundle or gallery) in a process of its own."""

    def __init__(self, model: str, tracking_uri: str) -> None:
        self._service = SearchService(load_search_model(model, tracking_uri))
        self._service.warm_up()
        # torch uses all cores in one thread, and the parser is not thread-safe.
        self._searching = ThreadPoolExecutor(1)
        self._decoding = ThreadPoolExecutor(2)

    async def facts(self) -> dict[str, Any]:
        """Describe the model."""
        return self._service.facts()

    async def search_text(self, text: str, k: int, target: Target) -> Answer:
        """Search with a text, together with the other texts that wait."""
        found: Answer = await self._texts(TextSearch(text, k, target))
        return found

    async def search_image(self, data: bytes, kind: str, k: int, target: Target | None) -> Answer:
        """Search with an image file of a content type, together with the other images that wait."""
        decoded = await _answered(self._decoding, self._service.decode, data, kind)
        return decoded if isinstance(decoded, RequestError) else await self._images(ImageSearch(decoded, k, target))

    async def image(self, image_id: str) -> bytes | RequestError:
        """Return an image of the gallery as a JPEG."""
        return await _answered(self._decoding, self._service.image, image_id)

    async def relevance(self, text: str, image_id: str) -> Answer:
        """Locate the parts of a text in an image of the gallery."""
        return await _answered(self._searching, self._service.relevance, text, image_id)

    @serve.batch(max_batch_size=limits.PER_REPLICA, batch_wait_timeout_s=limits.BATCH_SECONDS)
    async def _texts(self, queries: Sequence[TextSearch]) -> Sequence[Any]:
        return await self._together(self._service.search_texts, queries)

    @serve.batch(max_batch_size=limits.PER_REPLICA, batch_wait_timeout_s=limits.BATCH_SECONDS)
    async def _images(self, queries: Sequence[ImageSearch]) -> Sequence[Any]:
        return await self._together(self._service.search_images, queries)

    async def _together(self, search: Callable[[Any], list[Answer]], queries: Sequence[Any]) -> list[Answer]:
        return await _in_thread(self._searching, search, queries)


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)


async def _answered(threads: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any) -> Result | RequestError:
    """Work in a thread. A refusal is returned: Ray Serve would log an error."""
    try:
        return await _in_thread(threads, work, *arguments)
    except RequestError as refusal:
        return refusal


class Ingress:
    """The application behind Ray Serve's own proxies, for a RayService."""

    def __init__(self, replicas: DeploymentHandle, replica_count: int) -> None:
        self._replicas = replicas
        self._replica_count = replica_count

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Build the application; Ray Serve asks for it. The token comes from the environment of the process."""
        token = read_token("0.0.0.0", os.environ.get(TOKEN_VARIABLE))
        return Guard(build_app(asking(self._replicas)), token, None, self._replica_count)


class ServiceArguments(BaseModel):
    """The `args` of the application in the configuration of a RayService; see infra/kubernetes/rayservice.yaml."""

    model_config = ConfigDict(extra="forbid")

    model: str
    tracking_uri: str | None = None
    max_replicas: PositiveInt = 1


def application(arguments: ServiceArguments) -> serve.Application:
    """Build the application of a RayService: the ingress over the replicas, deployments `ingress` and `search`.

    A name is resolved here, once for all replicas.
    """
    tracking_uri = arguments.tracking_uri or default_tracking_uri()
    replicas = search_deployment().bind(pin(arguments.model, tracking_uri), tracking_uri)
    ingress = serve.deployment(serve.ingress()(Ingress)).options(
        name="ingress",
        max_ongoing_requests=limits.MAX_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        **_REPLACEMENT,
    )
    return ingress.bind(replicas, arguments.max_replicas)


def search_deployment(replicas: int = 1, max_replicas: int = 1, gpus: float = 0) -> serve.Deployment:
    """Return the deployment of the replicas: a number of them, or as many as the load needs up to `max_replicas`."""
    scaling: dict[str, Any] = {"num_replicas": replicas}
    if max_replicas > replicas:
        # A replica that works on half of what it takes at a time is busy.
        half = limits.PER_REPLICA / 2
        autoscaling = {"min_replicas": replicas, "max_replicas": max_replicas, "target_ongoing_requests": half}
        scaling = {"autoscaling_config": autoscaling}
    environment = ray_internals.SERVE_SETTINGS | cluster.KEEP_MEMORY | plugin_variable()
    return serve.deployment(SearchReplica).options(
        name="search",
        max_ongoing_requests=limits.MAX_REQUESTS,  # the guard admits fewer
        **_REPLACEMENT,
        ray_actor_options={"num_gpus": gpus, "runtime_env": {"env_vars": environment}},
        logging_config={"log_level": "WARNING", "enable_access_log": False},
        **scaling,
    )


def asking(handle: DeploymentHandle) -> Replicas:
    """Return a function that calls a method of a replica, and raises what it refuses."""

    async def ask(method: str, *arguments: Any) -> Any:
        try:
            found = await getattr(handle, method).remote(*arguments)
        except RayTaskError:
            raise  # an error of our own
        except (RayError, RayServeException) as error:
            message = "the service is being started or stopped; try again in a moment"
            raise RequestError(503, message, {"Retry-After": "1"}) from error
        if isinstance(found, RequestError):
            raise found
        return found

    return ask
