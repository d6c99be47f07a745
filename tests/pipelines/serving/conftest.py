"""A service over a tiny gallery, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from pipelines.retrieval.search_model import SearchModel, load_search_model
from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard
from pipelines.serving.service import SearchService
from tests.pipelines.serving.replicas import local_replicas
from tests.pipelines.tiny_bundle import write_tiny_bundle

HOSTS = ("127.0.0.1", "localhost")


@pytest.fixture(scope="session")
def search_model(tmp_path_factory: pytest.TempPathFactory) -> SearchModel:
    return load_search_model(str(write_tiny_bundle(tmp_path_factory.mktemp("serving") / "bundle")), "unused")


@pytest.fixture
def service(search_model: SearchModel) -> SearchService:
    return SearchService(search_model)


@pytest.fixture
def client(service: SearchService) -> Iterator[TestClient]:
    with TestClient(Guard(build_app(local_replicas(service)), None, HOSTS), base_url="http://127.0.0.1") as client:
        yield client
