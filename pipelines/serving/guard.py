"""The guard of the service, in Ray Serve's proxy: a request costs the model nothing before it has passed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving import limits
from pipelines.serving.request_error import RequestError

# The page itself, which asks for the token, and the addresses that a load balancer asks. Ray Serve's own, "/-/...",
# are answered by the proxy alone.
PUBLIC = frozenset({"/", "/page.js", "/page.css", "/health", "/-/healthz"})

# The key of a request's scope that the guard sets, which no client can.
GUARDED = "vse.guarded"

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The headers that reach the replicas. Others could switch off Ray Serve's time limits; the token is of no use there.
_PASSED = frozenset({b"host", b"content-type", b"content-length"})


def token_digest(token: str) -> str:
    """Return the sha256 of a token, which the service keeps instead of it."""
    return hashlib.sha256(token.encode()).hexdigest()


class Guard:
    """ASGI middleware that refuses foreign hosts, requests without the token, slow bodies, and more than can be done.

    Args:
        app: answers the others.
        token: digest of the token that requests carry, except those for the page; None if none is needed.
        hosts: accepted host names; None accepts any. On the loopback they have to be checked: a page on the web could
            otherwise have its own name resolve to this machine, and read the answers.
        replicas: processes that answer.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None, replicas: int = 1) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._requests = limits.Shares(limits.MAX_REQUESTS, "requests")
        self._bodies = limits.Shares(limits.MAX_BODIES, "uploads")
        self._queue = limits.WorkQueue(limits.QUEUE_SECONDS, replicas * limits.PER_REPLICA)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request."""
        if scope["type"] != "http":
            # Start and end of the process; there are no websockets.
            await self._app(scope, receive, send)
            return
        client = (scope.get("client") or ("",))[0]
        answer = _Answer(send)
        try:
            self._check(scope)
            self._requests.take(client)
            try:
                await self._pass(client, scope, receive, answer)
            finally:
                self._requests.give_back(client)
        except RequestError as refusal:
            await refusal.response()(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._hosts is not None and _without_port(headers.get("host", "")) not in self._hosts:
            raise RequestError(400, f"this service goes by the names {', '.join(sorted(self._hosts))}")
        if self._token is None or scope["path"] in PUBLIC:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared in constant time, and as digests, whose length says nothing.
        if scheme.lower() != "bearer" or not hmac.compare_digest(token_digest(given.strip()), self._token):
            message = "this service needs a token: Authorization: Bearer TOKEN"
            raise RequestError(401, message, {"WWW-Authenticate": "Bearer"})

    async def _pass(self, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, once the body has arrived, which stays in memory until then."""
        parts: list[bytes] = []
        try:
            await self._read(client, Request(scope, receive), parts)
            body = iter([{"type": "http.request", "body": b"".join(parts), "more_body": False}])

            async def received() -> Message:
                return next(body, None) or await receive()

            passed = [(name, value) for name, value in scope["headers"] if name in _PASSED]
            async with self._queue.turn(client):
                await self._app({**scope, "headers": passed, GUARDED: True}, received, send)
        finally:
            self._bodies.give_back(client, sum(map(len, parts)))

    async def _read(self, client: str, request: Request, parts: list[bytes]) -> None:
        """Read the body of a request into `parts`; refuse one that is compressed, too long, too slow, or cut short."""
        if "content-encoding" in request.headers:
            raise RequestError(415, "send the body as it is, without Content-Encoding")
        is_image = request.headers.get("content-type", "").startswith("image/")
        left = limit = limits.MAX_IMAGE_BYTES if is_image else limits.MAX_JSON_BYTES
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            raise RequestError(400, "Content-Length is no number")
        too_long = RequestError(413, f"the body is longer than {limit:,} bytes")
        if len(length) > 12 or int(length) > limit:
            raise too_long
        try:
            async with asyncio.timeout(limits.ARRIVAL_SECONDS):
                async for chunk in request.stream():
                    left -= len(chunk)
                    if left < 0:
                        raise too_long
                    self._bodies.take(client, len(chunk))
                    parts.append(chunk)
        except TimeoutError:
            message = f"the body did not arrive within {limits.ARRIVAL_SECONDS} seconds"
            raise RequestError(408, message, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise RequestError(400, "the body was cut short") from None


class _Answer:
    """Sends an answer with the security headers; errors of Ray Serve itself, which are plain text, become JSON."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_replaced = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            self._is_replaced = message["status"] >= 400 and headers.get("content-type") != "application/json"
            headers.update(_HEADERS)
            if self._is_replaced:
                await self._replace(message["status"])
                return
        if not self._is_replaced:
            await self._send(message)

    async def _replace(self, status: int) -> None:
        reason = HTTPStatus(status).phrase.lower()
        error = RequestError(status, f"{reason}; try again in a moment", {"Retry-After": "1", **_HEADERS}).response()
        await self._send({"type": "http.response.start", "status": status, "headers": error.raw_headers})
        await self._send({"type": "http.response.body", "body": error.body})


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()
