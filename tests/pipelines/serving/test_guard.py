"""The guard lets through what has a token, arrives in time and can be done in time, and limits each client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from pipelines.serving import limits
from pipelines.serving.guard import Guard
from pipelines.serving.request_error import RequestError

TOKEN = "a token of some length"
Handler = Callable[[Request], Awaitable[Response]]


def application(handler: Handler) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await handler(Request(scope, receive)))(scope, receive, send)

    return app


async def echo(request: Request) -> Response:
    return JSONResponse({"headers": dict(request.headers), "body": (await request.body()).decode()})


async def ask(guarded: Guard, client: str, body: list[bytes], pause: float = 0.0, path: str = "/search") -> Response:
    """Send a body in parts, with a pause before each."""
    parts, sent = list(body), []

    async def receive() -> Message:
        await asyncio.sleep(pause)
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "client": (client, 1)}
    await guarded({**scope, "headers": [(b"host", b"a"), (b"content-type", b"multipart/form-data")]}, receive, send)
    start, *rest = sent
    answer = Response(b"".join(part["body"] for part in rest), start["status"])
    answer.raw_headers = start["headers"]
    return answer


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \u00e9"],
)
def test_with_a_token_nobody_else_is_answered(authorization: str) -> None:
    client = TestClient(Guard(application(echo), TOKEN, None), base_url="http://example.com")
    headers = {"Authorization": authorization.encode()} if authorization else {}
    for path in ("/model", "/search", "/images/x", "/nope", "/docs/", "/static-offline-docs", "/health/"):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/", "/page.js", "/page.css", "/health", "/docs", "/openapi.json", "/static-offline-docs/a.js"):
        assert client.get(path).status_code == 200
    assert client.get("/model", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (400, {"Host": "example.com"}, b"{}"),
        (401, {"Authorization": ""}, b"{}"),
        (413, {"Content-Type": "application/json"}, bytes(limits.MAX_JSON_BYTES + 1)),
        (415, {"Content-Encoding": "gzip"}, b"{}"),
        (431, {"X-Long": "a" * limits.MAX_HEAD_BYTES}, b"{}"),
        (200, {}, b"{}"),
    ],
)
def test_a_body_that_is_not_read_closes_the_connection(status: int, headers: dict[str, str], body: bytes) -> None:
    """It would go on arriving, for as long as the client likes, in a connection that the service keeps."""
    client = TestClient(Guard(application(echo), TOKEN, ["testserver"]))
    answer = client.post("/search", content=body, headers={"Authorization": f"Bearer {TOKEN}"} | headers)
    assert answer.status_code == status
    assert (answer.headers.get("connection") == "close") == (status != 200)


def test_an_answer_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: Request) -> Response:
        await asyncio.sleep(10)
        return JSONResponse({})

    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.2)
    answer = TestClient(Guard(application(hang), None, None)).get("/model")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "there was no answer within 0.2 seconds; try again in a moment"}
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_slow_body_is_refused_in_time_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ARRIVAL_SECONDS", 0.5)

    async def all_at_once() -> None:
        guarded = Guard(application(echo), None, None)
        slow = [asyncio.create_task(ask(guarded, "10.0.0.1", [b"a"] * 100, 0.1)) for _ in range(100)]
        await asyncio.sleep(0.2)
        for number in range(200):
            answer = await ask(guarded, f"10.0.1.{number}", [b"ab", b"c"])
            assert (answer.status_code, b'"abc"' in answer.body) == (200, True)
        for task in slow:
            answer = await task
            assert (answer.status_code, answer.headers["connection"]) == (408, "close")
            assert b"did not arrive within 0.5 seconds" in answer.body

    asyncio.run(all_at_once())


def test_bodies_in_memory_are_bounded_for_a_client_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODIES", 4000)

    async def fill() -> None:
        guarded = Guard(application(echo), None, None)
        uploads = [asyncio.create_task(ask(guarded, client, [bytes(1000)] * 3, 0.2)) for client in ("a", "b", "c", "d")]
        statuses = sorted([(await upload).status_code for upload in uploads])
        assert set(statuses) <= {429, 503}
        assert 503 in statuses
        assert (await ask(guarded, "a", [bytes(2000)])).status_code == 200
        greedy = await ask(guarded, "a", [bytes(2001)])
        assert (greedy.status_code, greedy.headers["retry-after"]) == (429, "1")
        assert b"too many uploads at once from this address" in greedy.body

    asyncio.run(fill())


@pytest.mark.parametrize(("clients", "refusal", "answered"), [(50, 503, 6), (1, 429, 3)])
def test_searches_that_wait_are_bounded(
    monkeypatch: pytest.MonkeyPatch, clients: int, refusal: int, answered: int
) -> None:
    monkeypatch.setattr(limits, "MAX_SEARCHES", 6)
    monkeypatch.setattr(limits, "PER_REPLICA", 2)
    running: list[int] = []

    async def work(_: Request) -> Response:
        running.append(1)
        assert len(running) <= 2
        await asyncio.sleep(0.02)
        running.pop()
        return JSONResponse({})

    async def flood() -> list[Response]:
        guarded = Guard(application(work), None, None)
        return await asyncio.gather(*(ask(guarded, str(number % clients), [b"x"]) for number in range(50)))

    answers = asyncio.run(flood())
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} == {refusal}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert len(answers) - len(refused) == answered


def test_what_a_client_holds_is_given_back() -> None:
    shares = limits.Shares(4, "things")
    shares.take("a", 2)
    with pytest.raises(RequestError, match="too many things at once from this address"):
        shares.take("a")
    shares.take("b", 2)
    with pytest.raises(RequestError, match="too many things at once; try"):
        shares.take("c")
    shares.give_back("a", 2)
    shares.give_back("b", 2)
    assert not shares._used
