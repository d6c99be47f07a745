"""The refusal of a request: a status and one message, which is all that leaves the service."""

from collections.abc import Mapping

from starlette.responses import JSONResponse


class RequestError(Exception):
    """A refused request: a 4xx status if the client can fix it, 503 if it can try again, and one message."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        # The arguments, by which it is pickled: a replica sends it to the application.
        super().__init__(status, message, headers)
        self.status, self.message, self.headers = status, message, headers

    def response(self) -> JSONResponse:
        """Return `{"error": message}`."""
        return JSONResponse({"error": self.message}, self.status, self.headers)
