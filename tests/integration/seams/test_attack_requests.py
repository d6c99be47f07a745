"""1,000 requests to a running service that are malformed, odd, slow or not allowed, on the loopback alone.

A refusal with a message is told; an answer that is the one to the undamaged request is harmless. A connection that is
closed without an answer is told if what came was not the complete head of a request.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.seams.attack import recorded
from tests.integration.seams.pipeline import ROOT, Result
from tests.pipelines.serving.bad_requests import encoded, form
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port

TOKEN = "0123456789abcdef0123456789abcdef"
HEAD = ("Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}")
SEARCH = b'{"text": "a red ring", "k": 2}'
VALUES = [
    "null", "true", "-1", "0", "101", "1e400", "9" * 5000, str(2**63), '"\\ud800"', '"\\u0000"', "[]",
    "{}", "[" * 5000, '""', '" "',
    '"x"', "NaN", "1.5", '"images"', '"captions"', '"' + "x" * 1001 + '"', '"🐕"', '["a"]', '"../x"',
    "'a'", "", "2 3", "\xff",
]  # fmt: skip
_SECONDS = 25.0


class Sent(NamedTuple):
    """Bytes of a request, in parts with a pause after each, in seconds."""

    name: str
    parts: list[bytes]
    pause: float = 0.0
    is_http: bool = True  # and in time; what is not may be hung up on


def request(method: str, path: str, body: bytes = b"", *headers: str, length: str | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *HEAD, f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def search(body: bytes, path: str = "/search") -> bytes:
    return request("POST", path, body, "Content-Type: application/json")


def upload(body: bytes, query: str = "") -> bytes:
    return request("POST", f"/search/image{query}", body, "Content-Type: multipart/form-data; boundary=limit")


def _changed(data: bytes, draw: random.Random) -> bytes:
    """Change a bit, cut, repeat, or put other bytes in."""
    at = draw.randrange(len(data))
    return [
        data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :],
        data[:at],
        data[:at] + data[max(0, at - 20) :],
        data[:at] + draw.choice([b"\0", b"\r\n", b"\xff\xfe", b" ", b":", b"\r", b"%", b"\x1b"]) + data[at:],
    ][draw.randrange(4)]


def heads(draw: random.Random) -> Iterator[Sent]:
    """Yield search requests with a damaged or odd head."""
    whole = search(SEARCH)
    end = whole.index(b"\r\n\r\n")
    extra = [
        "Content-Length: 5", "Content-Length: -1", "Transfer-Encoding: chunked", "Transfer-Encoding: x",
        "Expect: 100-continue", "X: " + "a" * 70_000,
        "Host: evil", "Connection: close", "Upgrade: websocket\r\nConnection: Upgrade", " folded",
        "Content-Encoding: gzip", ": empty", "A b: c",
        "Content-Type: text/plain", "Range: bytes=0-1", "Cookie: " + "a=b;" * 1000,
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ", "X:\x00",
    ]  # fmt: skip
    yield from (
        Sent(f"header {line[:30]!r}", [request("POST", "/search", SEARCH, "Content-Type: application/json", line)])
        for line in extra
    )
    yield from (
        Sent(f"length {each}", [request("POST", "/search", SEARCH, length=each)])
        for each in ("-1", "x", "1e3", "+31", "0x1f", "31, 31", "9" * 30, "")
    )
    for version in ("HTTP/0.9", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "http/1.1", "", "RTSP/1.0"):
        yield Sent(f"version {version}", [whole.replace(b"HTTP/1.1", version.encode(), 1)])
    while True:
        yield Sent("head", [_changed(whole[: end + 2], draw) + b"\r\n" + SEARCH], is_http=False)


def methods(draw: random.Random) -> Iterator[Sent]:
    """Yield methods and paths that there are not."""
    names = [
        "GET",
        "HEAD",
        "PUT",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "CONNECT",
        "PATCH",
        "PROPFIND",
        "get",
        "BREW",
        "G" * 300,
        "G\tT",
    ]
    paths = [
        "/", "//", "/search", "/health", "/model", "/images/x", "/images/../../etc/passwd",
        "/images/%2e%2e%2fetc%2fpasswd", "/images/%00", "*",
        "/images/" + "x" * 5000, "/%ff", "/%", "/?" + "a=b&" * 1000, "http://evil/",
        "/images/scene://0/0", "/docs", "/openapi.json", "/é", "/x\0y",
        "/images//etc/passwd", "/page.js", "/..", "/search?k=999", "/images/file:///etc/passwd",
        "/metrics", "/-/healthz", "/api/", "/#a", "search",
    ]  # fmt: skip
    while True:
        method, path = draw.choice(names), draw.choice(paths)
        yield Sent(f"{method[:10]} {path[:40]!r}", [request(method, path)])


def bodies(draw: random.Random) -> Iterator[Sent]:
    """Yield JSON with other values, keys and forms."""
    for value in VALUES:
        for key in ("text", "k", "target", "image_id", "K", ""):
            for path in ("/search", "/relevance"):
                content = '{"text": "a red ring", "' + key + '": ' + value + "}"
                yield Sent(f"{path} {key}: {value[:20]}", [search(content.encode("latin-1", "replace"), path)])
    while True:
        yield Sent("body", [search(_changed(SEARCH, draw))])


def images(draw: random.Random) -> Iterator[Sent]:
    """Yield uploads of images of odd shapes and of damaged ones, in damaged forms."""
    for size in ((1, 1), (1, 5000), (5000, 1), (3000, 2), (9, 100), (2000, 2000)):
        for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
            mime = f"image/{kind.lower()}"
            yield Sent(f"{kind} of {size}", [upload(form(encoded(kind, *size), mime))])
    for query in ("?k=0", "?k=x", "?k=101", "?target=captions", "?target=x", "?x=1", "?k=1&k=2", "?target=images"):
        yield Sent(f"query {query}", [upload(form(encoded("PNG")), query)])
    while True:
        kind = draw.choice(["PNG", "JPEG", "WEBP"])
        data, mime = encoded(kind), f"image/{kind.lower()}"
        if draw.random() < 0.7:
            yield Sent(f"damaged {kind}", [upload(form(_changed(data, draw), mime))])
        else:
            yield Sent("damaged form", [upload(_changed(form(data, mime), draw))])


def tokens(draw: random.Random) -> Iterator[Sent]:
    """Yield tokens that are not the service's."""
    whole = search(SEARCH)
    for found in (
        b"",
        b"Bearer",
        b"Basic " + TOKEN.encode(),
        b"bearer  " + TOKEN[:-1].encode(),
        b"Bearer " + TOKEN.encode() * 100,
    ):
        yield Sent(f"token {found[:20]!r}", [whole.replace(f"Bearer {TOKEN}".encode(), found)])
    while True:
        at = draw.randrange(len(TOKEN))
        wrong = TOKEN[:at] + draw.choice("ghij\xff\0 ") + TOKEN[at + 1 :]
        yield Sent("token", [whole.replace(TOKEN.encode(), wrong.encode("latin-1"))])


def slow(draw: random.Random) -> Iterator[Sent]:
    """Yield requests that come byte by byte, or end half way."""
    while True:
        whole = draw.choice([search(SEARCH), upload(form(encoded("PNG")))])
        at = draw.randrange(1, len(whole))
        if draw.random() < 0.3:
            yield Sent(f"half, {at} bytes", [whole[:at]], is_http=False)
        else:
            pause = draw.choice([0.1, 1.0, 12.0])
            yield Sent(f"a pause after {at} bytes", [whole[:at], whole[at:]], pause, is_http=pause < 10)


KINDS: list[tuple[Callable[[random.Random], Iterator[Sent]], int]] = [
    (heads, 200), (methods, 200), (bodies, 330), (images, 190), (tokens, 30), (slow, 50),
]  # fmt: skip


def ask(port: int, sent: Sent) -> Result:
    """Send a request; 0 is an answer, 1 a refusal with its message, 70 an error of the server, none, or no answer."""
    answer, started = b"", time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
            try:
                for part in sent.parts:
                    connection.sendall(part)
                    time.sleep(sent.pause)
            except OSError:  # refused before it was all sent
                pass
            while not _is_whole(answer, sent) and (part := connection.recv(65536)):
                answer += part
    except TimeoutError:
        return Result(70, "", f"no answer in {time.monotonic() - started:.0f} seconds: {answer[:200]!r}")
    except ConnectionError:  # after a refusal that was not waited for
        pass
    return _judged(answer, sent)


def _without_continue(answer: bytes) -> bytes:
    return re.sub(rb"^HTTP/1.1 100 [^\r]*\r\n\r\n", b"", answer)


def _is_whole(answer: bytes, sent: Sent) -> bool:
    """Whether an answer has arrived; the connection may stay open for further requests."""
    head, end, body = _without_continue(answer).partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    is_empty = sent.parts[0].startswith(b"HEAD") or head.startswith(b"HTTP/1.1 304")
    return bool(end) and (is_empty or (length is not None and len(body) >= int(length[1])))


def _judged(answer: bytes, sent: Sent) -> Result:
    head, _, body = _without_continue(answer).partition(b"\r\n\r\n")
    if not head:
        return Result(70 if sent.is_http else 1, "", "error: closed without an answer")
    status = int(head[9:12])
    if status < 400:
        return Result(0, body.decode(errors="replace"), "")
    if status == 500:
        return Result(70, "", answer.decode(errors="replace")[:500])
    message = "" if sent.parts[0].startswith(b"HEAD") else json.loads(_unchunked(body))["error"]
    return Result(1, "", f"error: {status} {message}")


def _unchunked(body: bytes) -> bytes:
    """Return the first JSON object of a body; another answer may stand behind it."""
    text = body[body.index(b"{") :]
    return json.dumps(json.JSONDecoder().raw_decode(text.decode(errors="replace"))[0]).encode()


def _is_an_answer(printed: str) -> bool:
    """A page, an image, or results that are some."""
    return not printed.startswith('{"results"') or len(json.loads(printed)["results"]) > 0


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a service that was started as a user starts it."""
    bundle, port = write_tiny_bundle(tmp_path / "bundle"), free_port()
    command = [sys.executable, str(ROOT / "pipelines" / "serve.py"), "--model", str(bundle), "--port", str(port)]
    environment = {**os.environ, "VSE_SERVE_TOKEN": TOKEN}
    service = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    line = service.stdout.readline()
    while "is served at" not in line:
        assert line, "the service ended"
        line = service.stdout.readline()
    yield port
    service.terminate()
    service.wait(60)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_requests(port: int) -> None:
    draw = random.Random(42)
    reference = ask(port, Sent("search", [search(SEARCH)]))
    assert reference.code == 0, reference
    sent = [each for kind, count in KINDS for each in islice(kind(draw), count)]
    draw.shuffle(sent)

    def results() -> Iterator[tuple[str, Result, Callable[[str], bool]]]:
        with ThreadPoolExecutor(16) as threads:
            for number, (each, result) in enumerate(
                zip(sent, threads.map(lambda one: ask(port, one), sent), strict=True)
            ):
                yield each.name, result, _is_an_answer
                if number % 100 == 99:
                    yield (
                        "a search between them",
                        ask(port, Sent("", [search(SEARCH)])),
                        lambda out: out == reference.out,
                    )

    defects = recorded("requests", results())
    assert not defects, "\n".join(defects)
