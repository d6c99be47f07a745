"""The web application: a page, searches by text or image, pictures, relevance maps, and whether it is well."""

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
from pipelines.serving.limits import MAX_IMAGE_BYTES, MAX_UPLOADS, Bench, Places, read_body
from pipelines.serving.queries import ImageQuery, RelevanceQuery, TextQuery, json_query, url_query
from pipelines.serving.request_error import RequestError, answer_error
from pipelines.serving.service import IMAGE_TYPES, SearchService

LOG = logging.getLogger(__name__)

_PAGE = Path(__file__).with_name("page")
_PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

# The network computes with all cores by itself, and the parser is for one thread.
_SEARCH_THREADS, _SEARCHES = 1, 32
_PICTURE_THREADS, _PICTURES = 2, 64
_SECONDS = 30.0


class _Answers:
    """The endpoints over one service."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._searches = Bench(_SEARCH_THREADS, _SEARCHES, _SECONDS, "searches")
        self._pictures = Bench(_PICTURE_THREADS, _PICTURES, _SECONDS, "pictures")
        self._uploads = Places(MAX_UPLOADS, "uploads")

    async def health(self, _request: Request) -> Response:
        """`GET /health`: it answers as soon as the model is there."""
        return JSONResponse({"status": "ok"})

    async def model(self, _request: Request) -> Response:
        """`GET /model`: what is served, for the page."""
        return JSONResponse(self._service.facts())

    async def search(self, request: Request) -> Response:
        """`POST /search`: a JSON body is a search with a text, an image body one with an image."""
        kind = _content_type(request)
        if kind in IMAGE_TYPES:
            return await self._search_image(request, kind)
        _require_json(kind, ("application/json", *IMAGE_TYPES))
        query = await json_query(request, TextQuery)
        work = partial(self._service.search_text, query.text, query.k, query.target)
        return JSONResponse(await self._searches.run(work))

    async def _search_image(self, request: Request, kind: str) -> Response:
        query = url_query(request, ImageQuery)
        # Held until the answer: the bytes are in memory for as long.
        with self._uploads.one():
            data = await read_body(request, MAX_IMAGE_BYTES)
            work = partial(self._service.search_image, data, kind, query.k, query.target)
            return JSONResponse(await self._searches.run(work))

    async def picture(self, request: Request) -> Response:
        """`GET /images/ID`: one picture of the gallery."""
        image_id = request.path_params["image_id"]
        data = await self._pictures.run(partial(self._service.picture, image_id))
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def relevance(self, request: Request) -> Response:
        """`POST /relevance`: where in a picture the parts of a text are."""
        _require_json(_content_type(request), ("application/json",))
        query = await json_query(request, RelevanceQuery)
        return JSONResponse(await self._searches.run(partial(self._service.relevance, query.text, query.image_id)))


def build_app(service: SearchService, token: str | None = None, hosts: Collection[str] | None = None) -> Guard:
    """Build the application.

    Args:
        service: answers.
        token: digest of the token that clients carry (see `guard.token_digest`); None where none is wanted.
        hosts: names that the service goes by; None lets any pass.
    """
    answers = _Answers(service)
    routes = [
        Route("/", _page("index.html"), methods=["GET"]),
        Route("/page.css", _page("page.css"), methods=["GET"]),
        Route("/page.js", _page("page.js"), methods=["GET"]),
        Route("/health", answers.health),
        Route("/model", answers.model),
        Route("/search", answers.search, methods=["POST"]),
        Route("/images/{image_id:path}", answers.picture),
        Route("/relevance", answers.relevance, methods=["POST"]),
    ]
    handlers = {RequestError: answer_error, HTTPException: _answer_http, Exception: _answer_fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, token, hosts)


def _page(name: str) -> Response:
    """A part of the page, read once."""
    path = _PAGE / name
    return Response(path.read_bytes(), media_type=_PAGE_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _require_json(kind: str, known: Collection[str]) -> None:
    """Refuse what is neither JSON nor anything else that is known here."""
    if kind != "application/json":
        listed = ", ".join(known)
        raise RequestError(415, f"Content-Type has to be one of {listed}", {"Accept-Post": listed})


async def _answer_http(request: Request, error: Exception) -> Response:
    """What the routes refuse: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not for this path; use {(error.headers or {}).get('Allow', 'another')}"
    else:
        message = "there is nothing at this path" if error.status_code == 404 else error.detail
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _answer_fault(request: Request, error: Exception) -> Response:
    """A fault of our own: the trace goes to the log, and a number by which it is found there to the client."""
    number = secrets.token_hex(4)
    LOG.error("%s %s failed (%s)", request.method, request.url.path, number, exc_info=error)
    message = f"this should not have happened; the server's log tells more under {number}"
    return JSONResponse({"error": message}, 500)
