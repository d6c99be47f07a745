"""Ray Serve's HTTP proxy with the guard in front, and with a time limit for the heads of requests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

import uvicorn.config
from starlette.middleware import Middleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.serving.guard import Guard
from pipelines.serving.limits import ARRIVAL_SECONDS

_SETTINGS = "VSE_SERVE_GUARD"


def settings(token: str | None, hosts: Sequence[str] | None, replicas: int) -> dict[str, str]:
    """Return the environment variable with the arguments of the guard, for the process of the proxy."""
    return {_SETTINGS: json.dumps({"token": token, "hosts": hosts, "replicas": replicas})}


def middlewares() -> list[Middleware]:
    """Return the guard, and have the server of this process hang up on heads that do not arrive; Ray Serve calls it."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:{PunctualProtocol.__name__}"
    return [Middleware(Guard, **json.loads(os.environ[_SETTINGS]))]


class PunctualProtocol(HttpToolsProtocol):
    """A connection that is closed if the head of a request takes longer than its time; uvicorn would wait forever."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first head."""
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        """Expect the rest of a head."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """Expect nothing: the guard has a limit for the body."""
        self._expect_nothing()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._expect_nothing()
        self._overdue = self.loop.call_later(ARRIVAL_SECONDS, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
