"""A small HTTP proxy that hands requests on to an S3 server and, when told so, spoils one."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_SECONDS = 6.0

_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}, said on purpose</Message></Error>"


@dataclass
class Fault:
    """Faults to inject into requests, and how often.

    Attributes:
        kind: one of those that `_Handler` knows.
        method: of the requests it happens to.
        times: how many of them.
        after: how many go through before.
        holds: chooses by the path with its query.
    """

    kind: str
    method: str = "GET"
    times: int = 1
    after: int = 0
    holds: Callable[[str], bool] = lambda path: True


@dataclass
class FaultyProxy:
    """A running proxy.

    Attributes:
        port, host: where it listens.
        happened: how often each kind of fault has happened.
        requests: how many requests were made, by method.
        fetched: how often each client has got each path, with the range.
    """

    port: int
    host: str = "127.0.0.1"
    faults: list[Fault] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    fetched: Counter[tuple[str, str]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """The address for AWS_ENDPOINT_URL."""
        return f"http://{self.host}:{self.port}"

    def inject(self, fault: Fault) -> None:
        """Let a fault happen to the next requests it is meant for."""
        with self.lock:
            self.faults.append(fault)

    def clear(self) -> None:
        """Forget the faults that have not happened, and what was counted."""
        with self.lock:
            self.faults.clear()
            self.happened.clear()
            self.requests.clear()
            self.fetched.clear()

    def draw(self, method: str, path: str) -> str:
        """The kind of fault that happens to a request, "" for none."""
        with self.lock:
            self.requests[method] += 1
            for fault in self.faults:
                if fault.method != method or not fault.holds(path) or not fault.times:
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                self.happened[fault.kind] += 1
                return fault.kind
        return ""


@contextmanager
def faulty_proxy(upstream: int, listener: socket.socket | None = None) -> Iterator[FaultyProxy]:
    """Run a proxy in front of a server on a port of this machine, by default on the loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler, bind_and_activate=False)
    server.daemon_threads = True
    server.socket.close()
    server.socket = listener or socket.create_server(("127.0.0.1", 0))
    host, port = server.socket.getsockname()
    proxy = FaultyProxy(port, host)
    server.upstream, server.proxy = upstream, proxy  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        """Hand one request on, or not, and its answer back, or part of it."""
        proxy: FaultyProxy = self.server.proxy  # type: ignore[attr-defined]
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = proxy.draw(self.command, self.path)
        if self.command == "GET":
            proxy.fetched[self.client_address[0], f"{self.path} {self.headers.get('Range', '')}"] += 1
        if kind.startswith("error:"):  # error:503:SlowDown
            _, status, code = kind.split(":")
            self._answer(int(status), [("Content-Type", "application/xml")], _ERROR.format(code=code).encode())
            return
        if kind == "reset before":
            self._reset()
            return
        if kind == "corrupt request":
            body = _flipped(body)
        status, headers, answer = self._forwarded(body)
        if kind == "answer lost":  # the server has done it, the client does not learn so
            self._reset()
        elif kind == "slow":
            time.sleep(SLOW_SECONDS)
            self._answer(status, headers, answer)
        elif kind in ("reset", "cut"):
            self._answer(status, headers, answer, answer[: len(answer) // 2])
            self._reset() if kind == "reset" else self._hang_up()
        elif kind == "shortened":
            self._answer(status, headers, answer[: len(answer) // 2])
        elif kind == "corrupt":
            self._answer(status, headers, _flipped(answer))
        elif kind == "wrong etag":
            others = [(name, value) for name, value in headers if name.lower() != "etag"]
            self._answer(status, [*others, ("ETag", f'"{"0" * 32}"')], answer)
        else:
            self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_PATCH = do_HEAD = do_DELETE = handle_any

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Keep quiet."""

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        # With the client's own Host: the signature covers it.
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=120)  # type: ignore[attr-defined]
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        dropped = ("transfer-encoding", "connection", "content-length")
        headers = [(name, value) for name, value in response.getheaders() if name.lower() not in dropped]
        if self.command == "HEAD":
            headers.append(("Content-Length", response.getheader("Content-Length", "0")))
        return response.status, headers, answer

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, sent: bytes | None = None) -> None:
        """Send an answer that announces a body, and as much of it as is to be sent."""
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if sent is None else sent)
            self.wfile.flush()

    def _reset(self) -> None:
        """End the connection so that the other side sees a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        if self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[:4] == b"\x01\0\0\0":
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_WR)


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :] if data else data
