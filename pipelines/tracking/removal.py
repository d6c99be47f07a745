"""The runs of an experiment that made given folders, and their removal with what they have logged."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipelines.tracking.client import connect, named_outages, unless_gone
from pipelines.tracking.mlflow_internals import forget
from preprocessing.storage.address import is_s3
from preprocessing.storage.opening import open_storage


class LoggedRuns:
    """The runs of an experiment and the models that they have logged, read once; TrackingError without an answer."""

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri, self._client = uri, connect(uri)
        with named_outages(uri, "find runs"):
            found = self._client.get_experiment_by_name(experiment)
            ids = [] if found is None else [found.experiment_id]
            runs = list(_pages(lambda token: self._client.search_runs(ids, max_results=1000, page_token=token)))
            models = list(_pages(lambda token: self._client.search_logged_models(ids, page_token=token))) if ids else []
        self._tags = {run.info.run_id: run.data.tags for run in runs}
        self._models = [(model.source_run_id, model.model_id) for model in models]
        logged = [(model.source_run_id, model.artifact_location) for model in models]
        # Run, and the folder of artifacts, which MLflow calls `artifacts`.
        self.artifacts = [*((run.info.run_id, run.info.artifact_uri) for run in runs), *logged]

    def of(self, folders: Iterable[str]) -> set[str]:
        """Return the runs whose fingerprints begin with the names of folders, and those below them."""
        names = {folder.rpartition("/")[2] for folder in folders}
        own = {run for run, tags in self._tags.items() if tags.get("vse.fingerprint", "")[:16] in names}
        while below := {run for run, tags in self._tags.items() if tags.get("mlflow.parentRunId") in own} - own:
            own |= below
        return own

    def remove(self, runs: Collection[str]) -> bool:
        """Remove runs, their models and artifacts; False if it takes an `mlflow gc` of the server to free their room.

        What an interrupted removal has removed is passed over.
        Raises TrackingError if MLflow does not answer.
        """
        models = [model for run, model in self._models if run in runs]
        with named_outages(self._uri, "remove runs"):
            for run, address in self.artifacts:
                if run in runs:
                    _remove(address)
            for model in models:
                with unless_gone():
                    self._client.delete_logged_model(model)
            for run in runs:
                with unless_gone():
                    self._client.delete_run(run)
            is_freed = True
            for going in [*(([run], []) for run in runs), *(([], [model]) for model in models)]:
                with unless_gone():
                    is_freed = forget(self._client, *going)
            return is_freed


def local_folder(address: str) -> Path | None:
    """Return the folder on this machine that MLflow keeps for artifacts; None if they are elsewhere."""
    path = Path(unquote(address.removeprefix("file://")))
    return path.parent if path.is_absolute() else None


def _remove(address: str) -> None:
    if (folder := local_folder(address)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
    elif is_s3(address):
        storage = open_storage(address)
        for entry in list(storage.list()):
            storage.delete(entry.name)


def _pages(search: Callable[[str | None], Any]) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = search(token)
        yield from page
        if not (token := page.token):
            return
