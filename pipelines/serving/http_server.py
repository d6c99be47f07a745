"""The HTTP server of the service: uvicorn in a thread, with limits for connections and for the heads of requests."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.runtime.stage import StageError
from pipelines.serving import limits, metrics

# In seconds, for the requests that are being answered when the service is stopped.
_LAST_ANSWERS = 2


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket at an address, of any free port for 0; StageError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason, _, _ = str(getattr(error, "strerror", None) or error).partition(" (while ")
        raise StageError(f"cannot listen at {host}, port {port}: {reason}; use another --port or --host") from error


@contextmanager
def listening(app: ASGIApp, listener: socket.socket) -> Iterator[int]:
    """Answer requests to a socket within a ``with`` statement, which is given the port."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_level="critical",
        server_header=False,
        timeout_keep_alive=limits.ANSWER_SECONDS,
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


class BoundedProtocol(HttpToolsProtocol):
    """A connection with limits that uvicorn lacks: for heads of requests, and for connections, also of each address.

    `limit_concurrency` looks at complete heads only, and tells no addresses apart. `h11_max_incomplete_event_size` is
    of a parser that needs 30 times as long for a body in tiny chunks, which would hold up all others.
    """

    _overdue: asyncio.TimerHandle | None = None
    _awaits_head = True
    _head_bytes = 0
    _since = 0.0  # the time of its last answer, or of its beginning

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first head, and close another connection if there are too many."""
        super().connection_made(transport)
        self._since = time.monotonic()  # the loop's own time is the same for all that it accepts together
        self._expect_head()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Parse data; a head may neither grow nor drip without end."""
        if self._awaits_head:
            self._head_bytes += len(data)  # zero again if the head ends in it
        super().data_received(data)
        if self._head_bytes > 2 * limits.MAX_HEAD_BYTES:  # the guard refuses what is shorter
            self._hang_up()
        elif self._head_bytes and self._overdue is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Hang up on a client that sends a third request before the answer to the first: each takes memory."""
        if self.pipeline:
            self._hang_up()
            raise ConnectionAbortedError  # ends the parsing
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Expect nothing: the guard has limits for the body."""
        self._expect_nothing()
        self._awaits_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Await the next head, for as long as a connection may idle."""
        self._awaits_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note the time of the last answer."""
        self._since = time.monotonic()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """If there are too many, close the one that has waited longest for its client, of the address that has most."""
        connections = cast("set[BoundedProtocol]", self.connections)
        counts = Counter(connection._address for connection in connections)
        if counts.total() <= limits.MAX_CONNECTIONS and counts[self._address] <= limits.MAX_CONNECTIONS // 2:
            return
        waiting = (connection for connection in connections if connection._waits)
        least = min(waiting, key=lambda connection: (-counts[connection._address], connection._since))
        connections.discard(least)  # it is told a moment later
        least._hang_up()

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            metrics.count("closed")
        self.transport.abort()  # one that is closing as well: it has something to send that nobody reads

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _waits(self) -> bool:
        """Whether it is the client's turn: to send a head or the rest of a body, or to read."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body or self.flow.write_paused

    def _expect_head(self) -> None:
        self._overdue = self.loop.call_later(limits.ARRIVAL_SECONDS, self._hang_up)

    def _expect_nothing(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
