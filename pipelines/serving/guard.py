"""The guard of the service: a request costs the model nothing before it has passed."""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.runtime.stage import StageError
from pipelines.serving import limits, metrics
from pipelines.serving.request_error import RequestError

TOKEN_VARIABLE = "VSE_SERVE_TOKEN"
_SHORTEST_TOKEN = 16
_MAKE_ONE = "make one by: openssl rand -hex 24"

# The page itself, which asks for the token, the description of the interface, and the address a load balancer asks.
PUBLIC = frozenset({"/", "/page.js", "/page.css", "/health", "/docs", "/openapi.json"})
_DOCS = "/static-offline-docs/"

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The page of the interface is Swagger's, whose script stands in it and sets its styles.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def read_token(host: str, token: str | None) -> str | None:
    """Return the token of the environment; StageError if it is short, or absent though other machines reach us."""
    if token and len(token) < _SHORTEST_TOKEN:
        raise StageError(f"{TOKEN_VARIABLE} has {len(token)} characters; use {_SHORTEST_TOKEN} at least: {_MAKE_ONE}")
    if not token and not is_loopback(host):
        raise StageError(
            f"--host {host} can be reached from other machines: set {TOKEN_VARIABLE} to a token that clients have to "
            f"carry ({_MAKE_ONE}), and put TLS in front; or leave --host out"
        )
    return token or None


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only; the one such name is "localhost"."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """ASGI middleware that refuses foreign hosts, requests without the token, slow bodies, and more than can be done.

    `hosts` are the accepted host names; None accepts any. On the loopback they have to be checked: a page on the web
    could otherwise have its own name resolve to this machine, and read the answers.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None, replicas: int = 1) -> None:
        self._app = app
        # Compared as digests, whose length says nothing.
        self._token = _digest(token) if token else None
        self._hosts = hosts
        self._requests = limits.Shares(limits.MAX_REQUESTS, "requests")
        self._bodies = limits.Shares(limits.MAX_BODIES, "uploads")
        self._searches = limits.Shares(replicas * limits.MAX_SEARCHES, "searches")
        self._turns = asyncio.Semaphore(replicas * limits.PER_REPLICA)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request."""
        if scope["type"] != "http":
            # Start and end of the process; websockets are not served.
            await self._app(scope, receive, send)
            return
        scope["request_id"] = metrics.request_id(scope)
        answer = _Answer(send, _DOCS_POLICY if scope["path"] == "/docs" else None, scope["request_id"])
        began = time.perf_counter()
        try:
            await self._respond(scope, receive, answer)
        finally:
            metrics.record(scope, answer.request_id, answer.status, time.perf_counter() - began, answer.is_refusal)

    async def _respond(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        client = (scope.get("client") or ("",))[0]
        try:
            self._check(scope)
            if scope["path"] == metrics.PATH:  # it is needed most when searches have taken all room
                await self._app(scope, receive, answer)
                return
            self._requests.take(client)
            try:
                async with asyncio.timeout(limits.ANSWER_SECONDS):
                    await self._pass(client, scope, receive, answer)
            except TimeoutError:
                message = f"there was no answer within {limits.ANSWER_SECONDS} seconds; try again in a moment"
                raise RequestError(503, message, {"Retry-After": "1"}) from None
            finally:
                self._requests.give_back(client)
        except RequestError as refusal:
            if answer.status:
                raise  # the client does not read it: the server hangs up
            answer.is_refusal = True
            await refusal.response()(scope, receive, answer)
        except Exception:
            # Starlette raises an error again that it has answered, for a server's log; ours is written.
            if not answer.status:
                raise

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        size = len(scope["path"]) + len(scope["query_string"])
        if size + sum(len(name) + len(value) for name, value in headers.raw) > limits.MAX_HEAD_BYTES:
            raise RequestError(431, f"the address and the headers are longer than {limits.MAX_HEAD_BYTES:,} bytes")
        if self._hosts is not None and _without_port(headers.get("host", "")) not in self._hosts:
            raise RequestError(400, f"this service goes by the names {', '.join(sorted(self._hosts))}")
        if self._token is None or scope["path"] in PUBLIC or scope["path"].startswith(_DOCS):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip()), self._token):
            message = "this service needs a token: Authorization: Bearer TOKEN"
            raise RequestError(401, message, {"WWW-Authenticate": "Bearer"})

    async def _pass(self, client: str, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        """Let the application answer, once the body has arrived, which stays in memory until then."""
        parts: list[bytes] = []
        try:
            await self._read(client, Request(scope, receive), parts)
            answer.keeps_connection = True
            body = iter([{"type": "http.request", "body": b"".join(parts), "more_body": False}])

            async def received() -> Message:
                return next(body, None) or await receive()

            self._searches.take(client)
            try:
                async with self._turns:
                    await self._app(scope, received, answer)
            finally:
                self._searches.give_back(client)
        finally:
            self._bodies.give_back(client, sum(map(len, parts)))

    async def _read(self, client: str, request: Request, parts: list[bytes]) -> None:
        """Read the body of a request into `parts`; refuse one that is compressed, too long, too slow, or cut short."""
        if "content-encoding" in request.headers:
            raise RequestError(415, "send the body as it is, without Content-Encoding")
        left = limit = limits.LONG_BODIES.get(request.url.path, limits.MAX_JSON_BYTES)
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            raise RequestError(400, "Content-Length is not a number")
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
            raise RequestError(408, message) from None
        except ClientDisconnect:
            raise RequestError(400, "the body was cut short") from None


class _Answer:
    """Sends an answer with the security headers; closes the connection while the request's body may still arrive.

    Its `status` is 0 until it begins.
    """

    def __init__(self, send: Send, policy: str | None, request_id: str) -> None:
        self._send = send
        self._headers = _HEADERS | {metrics.ID_HEADER: request_id}
        self._headers |= {"Content-Security-Policy": policy} if policy else {}
        self.request_id = request_id
        self.status = 0
        self.is_refusal = False
        self.keeps_connection = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).update(self._headers)
            if not self.keeps_connection:
                MutableHeaders(scope=message)["Connection"] = "close"
        await self._send(message)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()
