"""The checks before every request: the host it was sent to and its token; and the security headers of answers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving.limits import ConcurrencyLimiter
from pipelines.serving.request_error import RequestError

MAX_REQUESTS = 128  # of any kind, at the same time
# The page itself, which asks for the token, and the address that a load balancer asks.
PUBLIC = frozenset({"/", "/page.js", "/page.css", "/health"})

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def token_digest(token: str) -> str:
    """Return the sha256 of a token, which the service keeps instead of it."""
    return hashlib.sha256(token.encode()).hexdigest()


class Guard:
    """ASGI middleware that refuses requests with a foreign host or without the token.

    Args:
        app: answers them.
        token: digest of the token that requests carry, except those for the page; None if none is needed.
        hosts: accepted host names; None accepts any. On the loopback they have to be checked: a page on the web could
            otherwise have its own name resolve to this machine, and read the answers.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._limiter = ConcurrencyLimiter(MAX_REQUESTS, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request."""
        if scope["type"] != "http":
            # Start and end of the process; there are no websockets.
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            with self._limiter.one():
                self._check(scope)
                await self._app(scope, receive, send_with_headers)
        except RequestError as refusal:
            await refusal.response()(scope, receive, send_with_headers)
        except Exception:
            # Starlette raises an error again that it has answered, for a server's log.
            if not begun:
                raise

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


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()
