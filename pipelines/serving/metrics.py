"""Metrics of the service for Prometheus (`/metrics`), and its log of requests: of the process that clients reach.

The client library's own metrics of the process (memory, CPU time, open files) are there too.
"""

import logging
import re
import secrets
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram, Info, generate_latest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from pipelines.runtime.cluster import is_connected

if TYPE_CHECKING:
    from ray.util import metrics

log = logging.getLogger(__name__)

PATH = "/metrics"
ID_HEADER = "X-Request-ID"
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ABOUT = "Requests by the status of their answer; closed: connections that were closed without one"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REQUESTS = Counter("vse_search_requests", _ABOUT, ("status",))
REFUSALS = Counter("vse_search_refusals", "Requests that the guard refused or gave up", ("status",))
SECONDS = Histogram("vse_search_seconds", "From a request's arrival to its answer", ("path",), buckets=_SECONDS)
SERVED = Info("vse_search_served", "The model (NAME/VERSION), and the gallery and its version if it is one's own")


@cache
def _requests_on_ray() -> "metrics.Counter":
    from ray.util import metrics

    return metrics.Counter("vse_search_requests", _ABOUT, ("status",))


def count(status: str) -> None:
    """Count a request; also for the metrics of Ray, if it runs: `ray_vse_search_requests_total`."""
    REQUESTS.labels(status).inc()
    if is_connected():
        _requests_on_ray().inc(tags={"status": status})


def request_id(scope: Scope) -> str:
    """Return the id of a request: the client's X-Request-ID if it is one, else a new one."""
    given = Headers(scope=scope).get(ID_HEADER, "")
    return given if _ID.fullmatch(given) else secrets.token_hex(8)


def record(scope: Scope, request: str, status: int, seconds: float, is_refused: bool) -> None:
    """Count and log a request that has ended; its status is 0 if the client was gone before the answer."""
    count(str(status or "closed"))
    if is_refused:
        REFUSALS.labels(str(status)).inc()
    else:  # the path of the route, as clients may ask for any other
        SECONDS.labels(getattr(scope.get("route"), "path", "")).observe(seconds)
    outcome = "refused" if is_refused else "failed" if status >= 500 else "answered" if status else "closed"
    found = {"id": request, "method": scope["method"], "path": scope["path"][:100], "status": status}
    found |= {"outcome": outcome, "ms": round(1000 * seconds, 1)}
    log.info("%s", " ".join(map(str, found.values())) + " ms", extra={"fields": found})


def exposed() -> Response:
    """Return all metrics in Prometheus' text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
