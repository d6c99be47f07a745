"""The refusal of a request: a status and one message, which is all that leaves the service."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse


class RequestError(Exception):
    """A refused request: a 4xx status if the client can fix it, 503 if it can try again, and one message."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[type[RequestError], tuple[int, str, dict[str, str]]]:
        """Pickle the arguments, which a replica sends to the application."""
        return type(self), (self.status, self.message, self.headers)

    def response(self) -> JSONResponse:
        """Return `{"error": message}`."""
        return JSONResponse({"error": self.message}, self.status, self.headers)
