"""The limits of the service: sizes, times, concurrent requests, and the reading of bodies within them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from pipelines.serving.request_error import RequestError

MAX_TEXT = 1000  # characters; captions have about a hundred
MAX_RESULTS = 100
MAX_JSON_BYTES = 16 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_IMAGE_PIXELS = 25_000_000
# An image of one row of pixels is no photograph, and costs more than one where its short side is scaled up.
MAX_ASPECT = 10
# Images of up to 10 MiB that are in memory at the same time.
MAX_UPLOADS = 8
BODY_SECONDS = 10.0

Result = TypeVar("Result")


class ConcurrencyLimiter:
    """Lets `count` requests pass at a time and refuses the others; `what` names them, in the plural, in the message."""

    def __init__(self, count: int, what: str) -> None:
        self._free = threading.Semaphore(count)
        self._what = what

    def acquire(self) -> None:
        """Count a request that begins; refuse it if there are too many."""
        if not self._free.acquire(blocking=False):
            message = f"too many {self._what} at once; try again in a moment"
            raise RequestError(503, message, {"Retry-After": "1"})

    def release(self) -> None:
        """Count a request that ends."""
        self._free.release()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a request within a ``with`` statement."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


class WorkerPool:
    """Threads that work for requests, with a bounded queue and a time limit.

    `requests` work or wait at a time, each up to `seconds`; `what` names them, in the plural.
    """

    def __init__(self, threads: int, requests: int, seconds: float, what: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"serve-{what}")
        self._limiter = ConcurrencyLimiter(requests, what)
        self._seconds = seconds

    async def run(self, work: Callable[[], Result]) -> Result:
        """Do some work in one of the threads; refuse it if the queue is full, or the work takes too long.

        Work that has begun ends even if the client has left, and counts until then: the queue is bounded by the work
        that is really being done.
        """
        self._limiter.acquire()
        future: Future[Result] = self._threads.submit(work)
        future.add_done_callback(lambda _: self._limiter.release())
        try:
            # A request that is cancelled while it waits leaves the queue.
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            message = f"no answer within {self._seconds:g} seconds; try again later"
            raise RequestError(503, message, {"Retry-After": "5"}) from None


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request; refuse one that is empty, too long, too slow, or compressed."""
    if "content-encoding" in request.headers:
        raise RequestError(415, "send the body as it is, without Content-Encoding")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise RequestError(400, "Content-Length is no number")
    too_long = RequestError(413, f"the body is longer than {limit:,} bytes")
    if len(length) > 12 or int(length) > limit:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_long
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise RequestError(400, "the body was cut short") from None
    if not body:
        raise RequestError(400, "the body is empty")
    return bytes(body)
