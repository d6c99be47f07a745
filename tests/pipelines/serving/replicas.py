"""A replica of a model in this process, which is called as a handle of Ray Serve calls it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from pipelines.serving.app import Replicas
from pipelines.serving.deployment import SearchReplica, asking
from pipelines.serving.service import ImageSearch, SearchService, TextSearch


class LocalReplica(SearchReplica):
    """A replica without Ray Serve's batches."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._searching, self._decoding = ThreadPoolExecutor(1), ThreadPoolExecutor(2)

    async def _texts(self, query: TextSearch) -> Any:
        return (await self._together(self._service.search_texts, [query]))[0]

    async def _images(self, query: ImageSearch) -> Any:
        return (await self._together(self._service.search_images, [query]))[0]


class LocalHandle:
    """The methods of a replica, with the ``remote`` of a handle."""

    def __init__(self, replica: SearchReplica) -> None:
        self._replica = replica

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=getattr(self._replica, method))


def local_replicas(service: SearchService) -> Replicas:
    return asking(LocalHandle(LocalReplica(service)))  # type: ignore[arg-type]
