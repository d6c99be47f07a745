"""What the service takes: sizes, times and numbers at once, and the reading of bodies within them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from pipelines.serving.request_error import RequestError, too_busy

MAX_TEXT = 1000  # characters; captions have about a hundred
MAX_RESULTS = 100
MAX_JSON_BYTES = 16 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_IMAGE_PIXELS = 25_000_000
# A picture of one row of pixels is no photograph, and costs more than one where its short side is scaled up.
MAX_ASPECT = 10
# What is read at once: images of up to 10 MiB.
MAX_UPLOADS = 8
BODY_SECONDS = 10.0

Result = TypeVar("Result")


class Places:
    """So many at once, and no more.

    Args:
        count: how many.
        what: they are, in the plural, for the message.
    """

    def __init__(self, count: int, what: str) -> None:
        self._free = threading.Semaphore(count)
        self._what = what

    def take(self) -> None:
        """Take a place.

        Raises:
            RequestError: there is none; nobody waits.
        """
        if not self._free.acquire(blocking=False):
            raise too_busy(self._what)

    def give_back(self) -> None:
        """Give a place back."""
        self._free.release()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place within a ``with`` statement."""
        self.take()
        try:
            yield
        finally:
            self.give_back()


class Bench:
    """Threads that work for requests, with a bounded queue and a time limit.

    Args:
        threads: that work at a time.
        places: requests that work or wait at a time.
        seconds: that a request waits for its result.
        what: the requests are, in the plural.
    """

    def __init__(self, threads: int, places: int, seconds: float, what: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"serve-{what}")
        self._places = Places(places, what)
        self._seconds = seconds

    async def run(self, work: Callable[[], Result]) -> Result:
        """Do some work in one of the threads.

        Work that has begun goes on when nobody waits any longer, and keeps its place until then: the queue is bounded
        by what is really being done.

        Raises:
            RequestError: there is no place, or it takes too long.
        """
        self._places.take()
        future: Future[Result] = self._threads.submit(work)
        future.add_done_callback(lambda _: self._places.give_back())
        try:
            # What is cancelled here, by the clock or since the client has left, leaves the queue.
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            raise RequestError(
                503, f"no answer within {self._seconds:g} seconds; try again later", {"Retry-After": "5"}
            ) from None


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request, read no further than its limit.

    Raises:
        RequestError: it is empty, too long, too slow, or compressed.
    """
    if "content-encoding" in request.headers:
        raise RequestError(415, "send the body as it is, without Content-Encoding")
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdecimal()):
        raise RequestError(400, "Content-Length is no number")
    if len(announced) > 12 or int(announced) > limit:
        raise _too_long(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_long(limit)
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise RequestError(400, "the body was cut short") from None
    if not body:
        raise RequestError(400, "the body is empty")
    return bytes(body)


def _too_long(limit: int) -> RequestError:
    return RequestError(413, f"the body is longer than {limit:,} bytes")
