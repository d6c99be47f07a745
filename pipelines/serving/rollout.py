"""The replicas of a running service: they change to a new version one by one, and the service ends if none starts."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipelines.registry.models import current_version, newer_version
from pipelines.retrieval.gallery_storage import STATE
from pipelines.retrieval.image_gallery import newer_model, read_state
from pipelines.runtime.cli import say
from pipelines.runtime.stage import StageError
from pipelines.schema.weights import PRETRAINED
from pipelines.serving.app import Ask

# In seconds: between two looks at the replicas, and at MLflow or the gallery.
_STATE_SECONDS, _NEWS_SECONDS = 1.0, 10.0


class Served(NamedTuple):
    """The model that replicas load: NAME/VERSION, a bundle's folder, or a gallery's folder with model and revision."""

    model: str
    version: str
    revision: int = 0

    @property
    def title(self) -> str:
        """The name for messages."""
        return f"{Path(self.model).name}, indexed with {self.version}," if self.revision else self.version


class State(NamedTuple):
    """The state of the replicas: how many answer, whether all are of the wanted version, and why none starts, or ""."""

    answering: int
    is_settled: bool
    failure: str


class Scale(NamedTuple):
    """Processes with the model: their number, the most under load, GPUs of each, and `spare` ones for replacements."""

    replicas: int = 1
    most: int = 1
    gpus: float = 0
    spare: int = 0


class Replicas(NamedTuple):
    """A service's replicas: `ask` calls one, `deploy` begins to change their `Served.model`, `state` looks at it.

    `go_back` does what is needed after a change that failed, to the model that is served.
    """

    ask: Ask
    deploy: Callable[[str], object]
    state: Callable[[], State]
    go_back: Callable[[str], object]


def find_served(reference: str, tracking_uri: str) -> Served:
    """Return what NAME, NAME@ALIAS, or the absolute path of a gallery or bundle means now; a pretrained model stays.

    Raises RegistryError or TrackingError if MLflow does not tell, GalleryError if the gallery cannot be read.
    """
    folder = Path(reference)
    if reference.startswith(PRETRAINED):
        return Served(reference, reference)
    if not folder.is_absolute():
        version, _ = current_version(reference, tracking_uri)
        return Served(version, version)
    gallery = read_state(folder)
    if gallery is None:
        return Served(reference, reference)
    return Served(reference, gallery["model"], (folder / STATE).stat().st_mtime_ns)


class Rollout:
    """The replicas of a service, which change one by one to what the reference `follows` means, if it is not None."""

    def __init__(self, served: Served, replicas: Replicas, tracking_uri: str, follows: str | None) -> None:
        self._served = self._wanted = self._found = served
        self._refused: Served | None = None
        self._replicas = replicas
        self._tracking_uri, self._follows = tracking_uri, follows
        self._news = self._told = ""

    def watch(self, interrupted: threading.Event) -> None:
        """Look after the replicas until interrupted; StageError if none answers and none can be started."""

        def keep_looking() -> None:
            """Look for news until interrupted."""
            while not interrupted.wait(_NEWS_SECONDS):
                self.look()

        # In a thread: an MLflow that does not answer must not hold up the end of the service.
        threading.Thread(target=keep_looking, daemon=True).start()
        while not interrupted.wait(_STATE_SECONDS):
            self.settle()

    def look(self) -> None:
        """Find what the reference means by now, and whether the name means another version than the one served."""
        try:
            if self._follows:
                self._found = find_served(self._follows, self._tracking_uri)
            model = self._found.model
            self._news = newer_model(Path(model), self._tracking_uri) or newer_version(model, self._tracking_uri)
        except Exception as error:  # noqa: BLE001 (the service continues as it is)
            self._news = f"cannot see whether there is a newer version: {error}"

    def settle(self) -> None:
        """Take up what was found, tell that it is done, go back if it cannot be loaded, give up if nothing can be."""
        state, found, news = self._replicas.state(), self._found, self._news
        if self._wanted == self._served:
            if state.failure and not state.answering:
                raise StageError(f"the replicas of {self._served.title} do not start any more: {state.failure}")
        elif state.failure:
            say(f"{self._wanted.title} cannot be loaded, {self._served.title} stays: {state.failure}")
            self._refused, self._wanted = self._wanted, self._served
            self._replicas.go_back(self._served.model)
        elif state.is_settled:
            say(f"{self._wanted.title} is served now, in place of {self._served.title}")
            self._served = self._wanted
        if found not in (self._wanted, self._refused):
            self._wanted = found
            self._replicas.deploy(found.model)
        if news and news != self._told:
            self._told = news
            say(news)
