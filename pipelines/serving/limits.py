"""The limits of the service: sizes, times, and what all clients and each of them may hold at a time."""

from collections import Counter

from pipelines.serving.request_error import RequestError

MAX_TEXT = 1000  # characters; captions have about a hundred
MAX_RESULTS = 100
MAX_TEXTS = 64  # of a batch
MAX_HEAD_BYTES = 64 * 1024
MAX_JSON_BYTES = 16 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024
# Bodies that may be longer than MAX_JSON_BYTES, by their path.
LONG_BODIES = {"/search/image": MAX_IMAGE_BYTES, "/search/base64": MAX_IMAGE_BYTES, "/search/batch": 8 * MAX_JSON_BYTES}
MAX_IMAGE_PIXELS = 25_000_000
# An image of one row of pixels is not a photograph, and costs more than one if its short side is scaled up.
MAX_ASPECT = 10
# For the head of a request, and for its body.
ARRIVAL_SECONDS = 10
# From the arrival of a request to its answer.
ANSWER_SECONDS = 30
# Requests of a replica that wait or are answered at a time.
MAX_SEARCHES = 128
# Requests that a replica works on at a time, and so the most that it embeds together.
PER_REPLICA = 16
# A search waits as long for others to be embedded with.
BATCH_SECONDS = 0.005
# Connections, which leave half of the usual 1,024 file descriptors to others; one address has half of them. As many
# requests arrive, wait or are answered at a time, whose bodies are in memory.
MAX_CONNECTIONS = MAX_REQUESTS = 512
MAX_BODIES = 128 * 1024 * 1024


class Shares:
    """An amount that is shared by all clients, and of which one client gets half at most; of one event loop.

    `what` names it in the message of a refusal: status 429 for a client that has its half, 503 if nothing is left.
    """

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self._what = what
        self._used: Counter[str] = Counter()

    def take(self, client: str, amount: int = 1) -> None:
        """Give a client some of it, or refuse the client's request."""
        for status, used, limit in ((429, self._used[client], self.limit / 2), (503, self._used.total(), self.limit)):
            if used + amount > limit:
                who = " from this address" if status == 429 else ""
                message = f"too many {self._what} at once{who}; try again in a moment"
                raise RequestError(status, message, {"Retry-After": "1"})
        self._used[client] += amount

    def give_back(self, client: str, amount: int = 1) -> None:
        """Take back what a client was given."""
        self._used[client] -= amount
        if not self._used[client]:
            del self._used[client]
