"""A service from its start to its end: a model in this process, or several replicas of it on Ray Serve."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from pipelines.registry.models import find_bundle, pin
from pipelines.retrieval.options import default_tracking_uri
from pipelines.runtime.cli import say
from pipelines.runtime.errors import in_one_line
from pipelines.runtime.stage import StageError
from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard, is_loopback
from pipelines.serving.http_server import bound, listening
from pipelines.serving.replica import SearchReplica
from pipelines.serving.rollout import Replicas, Rollout, Scale, Served, State, find_served

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_ONE_REPLICA = Scale()


def run(options: argparse.Namespace, token: str | None) -> None:
    """Serve what the command line names until interrupted."""
    tracking_uri = options.tracking_uri or default_tracking_uri()
    served = find_served(pin(options.model, tracking_uri), tracking_uri)
    find_bundle(served.version, tracking_uri)  # what is wrong with it is told before Ray is started
    follows = _followed(options.model, served) if options.follow else None
    if not torch.cuda.is_available():
        packages: dict[str, Any] = sys.modules
        packages.setdefault("triton", None)  # transformers would load it, 70 MB for GPUs alone
    interrupted = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: interrupted.set())
    scale = Scale(options.replicas, options.max_replicas, options.gpus_per_replica, spare=int(options.follow))
    host = f"[{options.host}]" if ":" in options.host else options.host
    with serving(served.model, tracking_uri, options.host, options.port, token, scale) as replicas:
        say(f"{served.title} is served at http://{host}:{options.port}/ (end with Ctrl-C)")
        Rollout(served, replicas, tracking_uri, follows).watch(interrupted)


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
) -> Iterator[Replicas]:
    """Serve a model (NAME/VERSION, or a bundle's directory) within a ``with`` statement, which begins when it answers.

    The application runs in this process, and calls the replicas of the model. Clients carry the token, if any.
    """
    # An address that is taken is told before Ray and the model are started.
    with bound(host, port) as listener, _replicas(model, tracking_uri, scale) as replicas:
        hosts = _LOOPBACK_NAMES if is_loopback(host) and token is None else None
        with listening(Guard(build_app(replicas.ask), token, hosts, max(scale.replicas, scale.most)), listener):
            yield replicas


def _replicas(model: str, tracking_uri: str, scale: Scale) -> AbstractContextManager[Replicas]:
    if scale._replace(spare=0) == _ONE_REPLICA:
        own = _OwnReplica(model, tracking_uri)
        # The old model is there still: to load it again could load what its gallery is by now.
        return nullcontext(Replicas(own.ask, own.deploy, own.state, go_back=lambda _: None))
    if find_spec("ray") is None:
        raise StageError("several replicas and shares of a GPU need Ray: pip install vse-pipeline")
    from pipelines.serving.deployment import replicas_on_ray

    return replicas_on_ray(model, tracking_uri, scale)


class _OwnReplica:
    """The model in this process; a new version is loaded next to the old one, which answers meanwhile."""

    def __init__(self, model: str, tracking_uri: str) -> None:
        self._tracking_uri = tracking_uri
        self._replica = SearchReplica(model, tracking_uri)
        self._state = State(answering=1, is_settled=True, failure="")

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the replica by its name."""
        return await self._replica.ask(method, *arguments)

    def deploy(self, model: str) -> None:
        """Begin to load a model in a thread."""
        self._state = self._state._replace(is_settled=False, failure="")
        self._loading = threading.Thread(target=self._load, args=(model,), daemon=True)
        self._loading.start()

    def state(self) -> State:
        """Return whether a model is being loaded, and why the last one could not be."""
        return self._state

    def _load(self, model: str) -> None:
        replica, failure = self._replica, ""
        try:
            replica = SearchReplica(model, self._tracking_uri)
        except Exception as error:  # noqa: BLE001 (the service continues with the old one, and tells)
            failure = in_one_line(error)
        if threading.current_thread() is self._loading:  # else another version is wanted by now
            self._replica, self._state = replica, self._state._replace(is_settled=True, failure=failure)
