"""The web application: a page, searches by text or image, images, relevance maps, and a health check."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipelines.serving.guard import Guard
from pipelines.serving.limits import MAX_IMAGE_BYTES, MAX_UPLOADS, ConcurrencyLimiter, WorkerPool, read_body
from pipelines.serving.queries import ImageQuery, RelevanceQuery, TextQuery, json_query, url_query
from pipelines.serving.request_error import RequestError, answer_error
from pipelines.serving.service import IMAGE_TYPES, SearchService

LOG = logging.getLogger(__name__)

_PAGE = Path(__file__).with_name("page")
_PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

# torch uses all cores in one thread, and the parser is not thread-safe.
_SEARCH_THREADS, _SEARCHES = 1, 32
_IMAGE_THREADS, _IMAGES = 2, 64
_SECONDS = 30.0


class _Answers:
    """The endpoints over one service."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._searches = WorkerPool(_SEARCH_THREADS, _SEARCHES, _SECONDS, "searches")
        self._images = WorkerPool(_IMAGE_THREADS, _IMAGES, _SECONDS, "images")
        self._uploads = ConcurrencyLimiter(MAX_UPLOADS, "uploads")

    async def health(self, _request: Request) -> Response:
        """`GET /health`: answer as soon as the model is loaded."""
        return JSONResponse({"status": "ok"})

    async def model(self, _request: Request) -> Response:
        """`GET /model`: describe the model, for the page."""
        return JSONResponse(self._service.facts())

    async def search(self, request: Request) -> Response:
        """`POST /search`: search with the text of a JSON body, or with the image of an image body."""
        kind = _content_type(request)
        if kind in IMAGE_TYPES:
            return await self._search_image(request, kind)
        _require_json(kind, ("application/json", *IMAGE_TYPES))
        query = await json_query(request, TextQuery)
        work = partial(self._service.search_text, query.text, query.k, query.target)
        return JSONResponse(await self._searches.run(work))

    async def _search_image(self, request: Request, kind: str) -> Response:
        query = url_query(request, ImageQuery)
        # Until the answer, as the bytes stay in memory.
        with self._uploads.one():
            data = await read_body(request, MAX_IMAGE_BYTES)
            work = partial(self._service.search_image, data, kind, query.k, query.target)
            return JSONResponse(await self._searches.run(work))

    async def image(self, request: Request) -> Response:
        """`GET /images/ID`: return one image of the gallery."""
        image_id = request.path_params["image_id"]
        data = await self._images.run(partial(self._service.image, image_id))
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def relevance(self, request: Request) -> Response:
        """`POST /relevance`: locate the parts of a text in an image."""
        _require_json(_content_type(request), ("application/json",))
        query = await json_query(request, RelevanceQuery)
        return JSONResponse(await self._searches.run(partial(self._service.relevance, query.text, query.image_id)))


def build_app(service: SearchService, token: str | None = None, hosts: Collection[str] | None = None) -> Guard:
    """Build the application over a service; `token` and `hosts` are those of `Guard`."""
    answers = _Answers(service)
    routes = [
        Route("/", _page("index.html"), methods=["GET"]),
        Route("/page.css", _page("page.css"), methods=["GET"]),
        Route("/page.js", _page("page.js"), methods=["GET"]),
        Route("/health", answers.health),
        Route("/model", answers.model),
        Route("/search", answers.search, methods=["POST"]),
        Route("/images/{image_id:path}", answers.image),
        Route("/relevance", answers.relevance, methods=["POST"]),
    ]
    handlers = {RequestError: answer_error, HTTPException: _answer_http, Exception: _answer_fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, token, hosts)


def _page(name: str) -> Response:
    path = _PAGE / name
    return Response(path.read_bytes(), media_type=_PAGE_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _require_json(kind: str, known: Collection[str]) -> None:
    if kind != "application/json":
        listed = ", ".join(known)
        raise RequestError(415, f"Content-Type has to be one of {listed}", {"Accept-Post": listed})


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not for this path; use {(error.headers or {}).get('Allow', 'another')}"
    else:
        message = "there is nothing at this path" if error.status_code == 404 else error.detail
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _answer_fault(request: Request, error: Exception) -> Response:
    """Log the traceback of an error of our own under a number, and send the number to the client."""
    number = secrets.token_hex(4)
    LOG.error("%s %s failed (%s)", request.method, request.url.path, number, exc_info=error)
    message = f"this should not have happened; the server's log tells more under {number}"
    return JSONResponse({"error": message}, 500)
