"""The HTTP server of the service: uvicorn in a thread, with a time limit for the heads of requests."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.runtime.stage import StageError
from pipelines.serving.limits import ANSWER_SECONDS, ARRIVAL_SECONDS

# In seconds, for the requests that are being answered when the service is stopped.
_LAST_ANSWERS = 2


@contextmanager
def listening(app: ASGIApp, host: str, port: int) -> Iterator[int]:
    """Answer requests to an address within a ``with`` statement, which is given the port; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise StageError(
            f"cannot listen at {host}, port {port}: {os.strerror(error.errno or 0)}; use another --port"
        ) from error
    config = uvicorn.Config(
        app,
        http=PunctualProtocol,
        ws="none",
        lifespan="off",
        log_level="critical",
        server_header=False,
        timeout_keep_alive=ANSWER_SECONDS,
        timeout_graceful_shutdown=_LAST_ANSWERS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="http")
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


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
