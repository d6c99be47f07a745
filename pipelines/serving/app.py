"""The web application: a page, searches by text or image, images, relevance maps, and a health check."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection
from functools import partial
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.serving.guard import GUARDED
from pipelines.serving.queries import ImageQuery, RelevanceQuery, TextQuery, full_body, json_query, url_query
from pipelines.serving.request_error import RequestError, answer_error
from pipelines.serving.service import IMAGE_TYPES, SearchService

LOG = logging.getLogger(__name__)

_PAGE = Path(__file__).with_name("page")
_PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


class _Answers:
    """The endpoints over one service. The guard limits what waits for their threads."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        # torch uses all cores in one thread, and the parser is not thread-safe.
        self._searching = CapacityLimiter(1)
        self._decoding = CapacityLimiter(2)

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
        return JSONResponse(await to_thread.run_sync(work, limiter=self._searching))

    async def _search_image(self, request: Request, kind: str) -> Response:
        query = url_query(request, ImageQuery)
        data = await full_body(request)
        image = await to_thread.run_sync(partial(self._service.decode, data, kind), limiter=self._decoding)
        work = partial(self._service.search_image, image, query.k, query.target)
        return JSONResponse(await to_thread.run_sync(work, limiter=self._searching))

    async def image(self, request: Request) -> Response:
        """`GET /images/ID`: return one image of the gallery."""
        image_id = request.path_params["image_id"]
        data = await to_thread.run_sync(self._service.image, image_id, limiter=self._decoding)
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def relevance(self, request: Request) -> Response:
        """`POST /relevance`: locate the parts of a text in an image."""
        _require_json(_content_type(request), ("application/json",))
        query = await json_query(request, RelevanceQuery)
        work = partial(self._service.relevance, query.text, query.image_id)
        return JSONResponse(await to_thread.run_sync(work, limiter=self._searching))


def build_app(service: SearchService) -> ASGIApp:
    """Build the application over a service, for requests that have passed the guard."""
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
    return _Guarded(app)


class _Guarded:
    """Answers what the guard has let through, and nothing if there is no guard."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and GUARDED not in scope:
            raise RuntimeError("Ray Serve's proxy runs without the guard: this version of Ray is not supported")
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            # Starlette raises an error again that it has answered, for a server's log.
            if not begun:
                raise


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
