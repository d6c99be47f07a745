"""A service over a tiny gallery, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from pipelines.retrieval.search_model import SearchModel
from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard
from pipelines.serving.replica import SearchReplica
from tests.pipelines.tiny_bundle import write_tiny_bundle

HOSTS = ("127.0.0.1", "localhost")


def guarded(replica: SearchReplica) -> Guard:
    """The application over a replica of this process."""
    return Guard(build_app(replica.ask), None, HOSTS)


@pytest.fixture(scope="session")
def replica(tmp_path_factory: pytest.TempPathFactory) -> SearchReplica:
    return SearchReplica(str(write_tiny_bundle(tmp_path_factory.mktemp("serving") / "bundle")), "unused")


@pytest.fixture
def search_model(replica: SearchReplica) -> SearchModel:
    return replica._model


@pytest.fixture
def client(replica: SearchReplica) -> Iterator[TestClient]:
    with TestClient(guarded(replica), base_url="http://127.0.0.1") as client:
        yield client
