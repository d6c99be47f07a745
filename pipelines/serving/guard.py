"""What stands before every request: the name it was sent to, the token, headers of caution."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving.limits import Places
from pipelines.serving.request_error import RequestError

MAX_REQUESTS = 128  # at once, whatever they want
# The page itself, which asks for the token, and what a load balancer asks.
PUBLIC = frozenset({"/", "/page.js", "/page.css", "/health"})

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def token_digest(token: str) -> str:
    """The sha256 of a token: what the service keeps instead of it."""
    return hashlib.sha256(token.encode()).hexdigest()


class Guard:
    """Lets the requests through that may be answered.

    Args:
        app: answers them.
        token: digest of the token that every request but those to the page carries; None where none is wanted.
        hosts: names that the service goes by; None lets any pass. On the loopback it has to be checked: a page on the
            web could otherwise have its own name resolve to this machine, and read the answers.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._places = Places(MAX_REQUESTS, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of ASGI."""
        if scope["type"] != "http":
            # The start and the end of the process; there are no websockets.
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_carefully(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            with self._places.one():
                self._check(scope)
                await self._app(scope, receive, send_carefully)
        except RequestError as refusal:
            await refusal.response()(scope, receive, send_carefully)
        except Exception:
            # What Starlette has answered, it raises once more for a server's log.
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
            message = "this service wants a token: Authorization: Bearer TOKEN"
            raise RequestError(401, message, {"WWW-Authenticate": "Bearer"})


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()
