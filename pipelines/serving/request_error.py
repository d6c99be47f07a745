"""How a request is refused: a status and one message, which is all that leaves the service."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse


class RequestError(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP: 4xx where the client can mend it, 503 where it can try again.
        message: what was wrong, and what would be right.
        headers: besides the usual ones.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The answer: `{"error": message}`."""
        return JSONResponse({"error": self.message}, self.status, self.headers)


def too_busy(what: str) -> RequestError:
    """There are more of something at once than the service takes."""
    return RequestError(503, f"too many {what} at once; try again in a moment", {"Retry-After": "1"})


async def answer_error(_request: Request, error: Exception) -> JSONResponse:
    """Answer as the refusal says."""
    assert isinstance(error, RequestError)
    return error.response()
