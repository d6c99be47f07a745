"""The HTTP server hangs up on heads that do not arrive, and on nobody else."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from pipelines.runtime.stage import StageError
from pipelines.serving import http_server

LIMIT = 0.6  # seconds


async def answer_late(scope: Scope, receive: Receive, send: Send) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_server, "ARRIVAL_SECONDS", LIMIT)
    with http_server.listening(answer_late, "127.0.0.1", 0) as port:
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


def test_a_head_that_drips_is_given_up(port: int) -> None:
    """The server's own time limit, between requests, begins again with each byte."""
    started, is_open = time.monotonic(), True
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        while is_open and time.monotonic() - started < 5:
            time.sleep(0.05)
            try:
                connection.sendall(b"a")
            except ConnectionError:
                is_open = False
    assert LIMIT * 0.9 < time.monotonic() - started < 4


def test_the_head_of_a_second_request_is_given_up_as_well(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while not answer.endswith(b"ok"):
            answer += connection.recv(1000)
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        assert LIMIT * 0.9 < seconds_until_closed(connection) < 4


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


def test_an_address_that_is_taken_is_one_message() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StageError, match=r"cannot listen at 127\.0\.0\.1, port .*: Address already in use; use another"),
        http_server.listening(answer_late, "127.0.0.1", taken.getsockname()[1]),
    ):
        pass
