"""The HTTP server refuses heads that do not arrive or end, and keeps its connections for clients that do not wait."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator

import psutil
import pytest
from starlette.types import Receive, Scope, Send

from pipelines.serving import limits
from pipelines.serving.http_server import bound, listening

LIMIT = 0.6  # seconds


async def answer_late(scope: Scope, receive: Receive, send: Send) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(limits, "ARRIVAL_SECONDS", LIMIT)
    with listening(answer_late, bound("127.0.0.1", 0)) as port:
        yield port


def seconds_until_closed(connection: socket.socket) -> float:
    started = time.monotonic()
    connection.settimeout(10)
    assert connection.recv(1000) == b""
    return time.monotonic() - started


@pytest.mark.parametrize("begun", [b"", b"POST /search HT", b"POST /search HTTP/1.1\r\nHost: a\r\nX-"])
def test_a_head_that_does_not_arrive_is_given_up(port: int, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(begun)
        assert LIMIT * 0.9 < seconds_until_closed(connection) < 5


REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def answers(connection: socket.socket, count: int = 1) -> bytes:
    """What a server sends until it has answered, or hung up."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while answer.count(b"\r\n\r\nok") < count and (part := connection.recv(100_000)):
            answer += part
    return answer


@pytest.mark.parametrize(("begun", "drop"), [(b"GET / HTTP/1.1\r\nX: ", b"a"), (b"\r\n", b"\r\n"), (REQUEST, b"\r\n")])
def test_a_head_that_drips_is_given_up(port: int, begun: bytes, drop: bytes) -> None:
    """The server's own time limit, between requests, begins again with each byte, and ends with a line's end."""
    started, is_open = time.monotonic(), True
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(begun)
        while is_open and time.monotonic() - started < 5:
            time.sleep(0.05)
            try:
                connection.sendall(drop)
            except ConnectionError:
                is_open = False
    assert LIMIT * 0.9 < time.monotonic() - started < 4


def test_the_head_of_a_second_request_is_given_up_as_well(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST)
        answers(connection)
        connection.sendall(REQUEST[:16])
        assert LIMIT * 0.9 < seconds_until_closed(connection) < 4


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n"])
def test_a_head_without_end_is_refused(port: int, begun: bytes) -> None:
    endless, sent = b"a" * 16_000 if begun == b"GET /" else b"a: b\r\n" * 3000, 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(begun)
        while sent < 10_000_000:
            sent += connection.send(endless)
    assert sent < 10_000_000


def test_a_long_body_is_not_a_long_head(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(head + bytes(1_000_000) + REQUEST[:10])
            connection.sendall(REQUEST[10:])
            assert answers(connection, 2).count(b"HTTP/1.1 200 ") == 2


def test_thousands_of_requests_at_once_take_no_memory(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(REQUEST * 10_000)
        assert answers(connection, 10_000).count(b"HTTP/1.1 200 ") < 3


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize(("addresses", "kept"), [(1, 10), (5, 20), (60, 20)])
@pytest.mark.parametrize("begun", [b"", REQUEST[:20], b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"])
def test_connections_that_wait_make_room(
    monkeypatch: pytest.MonkeyPatch, addresses: int, kept: int, begun: bytes
) -> None:
    """One address keeps half of the connections, all of them not one more; who is answered is among them."""
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 20)
    with listening(answer_late, bound("127.0.0.1", 0)) as port, contextlib.ExitStack() as stack:
        slow = []
        for number in range(60):
            source = (f"127.0.1.{number % addresses}", 0)
            slow.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, source)))
            slow[-1].sendall(begun)
        for source in ("127.0.1.0", "127.0.2.0"):
            with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as connection:
                connection.sendall(REQUEST)
                assert answers(connection).startswith(b"HTTP/1.1 200 ")
        assert kept - 2 <= sum(map(is_open, slow)) <= kept


def test_a_slow_body_and_a_pause_between_requests_are_none_of_its_business(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for _ in range(2):
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", "4")
        connection.endheaders()
        for _ in range(4):
            time.sleep(LIMIT / 2)
            connection.send(b"a")
        assert connection.getresponse().read() == b"ok"
        time.sleep(LIMIT * 2)
    connection.close()


def test_clients_that_do_not_read_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has closed their connections, which stay as long as there is something to send."""
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 20)
    headers = [(b"content-length", b"20000000"), (b"connection", b"close")]

    async def answer_at_length(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(20_000_000)})

    with listening(answer_at_length, bound("127.0.0.1", 0)) as port, contextlib.ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            client.sendall(REQUEST)
            assert client.recv(1) == b"H"
        time.sleep(0.1)
        ends = [end for end in psutil.Process().net_connections("tcp") if end.laddr.port == port and end.raddr]
        assert len(ends) <= 10
