"""The web application: a page, searches by text or image, images, relevance maps, and a health check."""

import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.routing import Route

from pipelines.serving.queries import (
    Found,
    ImageQuery,
    Maps,
    ModelFacts,
    Refusal,
    RelevanceQuery,
    TextQuery,
    invalid,
    require_json,
    require_single,
)
from pipelines.serving.request_error import RequestError, answer_error
from pipelines.serving.service import IMAGE_TYPES

LOG = logging.getLogger(__name__)

# Calls a method of a replica of the model by its name; a refusal, a RequestError, is returned or raised.
Ask = Callable[..., Awaitable[Any]]

_PAGE = Path(__file__).with_name("page")
_PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def build_app(ask: Ask) -> FastAPI:
    """Build the application over replicas of a model, for requests that have passed the guard."""

    async def answered(method: str, *arguments: Any) -> Any:
        found = await ask(method, *arguments)
        if isinstance(found, RequestError):
            raise found
        return found

    handlers = {
        RequestError: answer_error,
        RequestValidationError: _answer_invalid,
        HTTPException: _answer_http,
        Exception: _answer_fault,
    }
    app = FastAPIOffline(
        title="Image-text search",
        generate_unique_id_function=lambda route: route.name,
        description="Searches a gallery of images and captions with a text or an image.",
        redoc_url=None,
        redirect_slashes=False,
        routes=[Route(path, _page(name)) for path, name in _PAGES.items()],
        exception_handlers=handlers,
        responses={"4XX": {"model": Refusal}, "5XX": {"model": Refusal}},
    )
    _add_searches(app, answered)
    _add_gallery(app, answered)
    return app


def _add_searches(app: FastAPI, ask: Ask) -> None:
    @app.post("/search", tags=["searches"], dependencies=[Depends(require_json)])
    async def search(query: TextQuery) -> Found:
        """Search with a text."""
        found: Found = await ask("search_text", query.text, query.k, query.target)
        return found

    @app.post("/search/image", tags=["searches"], dependencies=[Depends(require_single)])
    async def search_image(image: UploadFile, query: Annotated[ImageQuery, Query()]) -> Found:
        """Search with an image."""
        if image.content_type not in IMAGE_TYPES:
            raise RequestError(415, f"image: its Content-Type has to be one of {', '.join(IMAGE_TYPES)}")
        data = await image.read()
        found: Found = await ask("search_image", data, image.content_type, query.k, query.target)
        return found

    @app.post("/relevance", tags=["searches"], dependencies=[Depends(require_json)])
    async def relevance(query: RelevanceQuery) -> Maps:
        """Locate the parts of a text in an image."""
        maps: Maps = await ask("relevance", query.text, query.image_id)
        return maps


def _add_gallery(app: FastAPI, ask: Ask) -> None:
    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Answer once a replica of the model does."""
        await ask("facts")
        return {"status": "ok"}

    @app.get("/model", tags=["service"])
    async def model() -> ModelFacts:
        """Describe the model and its gallery, and the limits of queries."""
        facts: ModelFacts = await ask("facts")
        return facts

    shown: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}

    @app.get("/images/{image_id:path}", tags=["gallery"], response_class=Response, responses=shown)
    async def image(image_id: str) -> Response:
        """Return one image of the gallery."""
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(await ask("image", image_id), media_type="image/jpeg", headers=headers)


_PAGES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}


def _page(name: str) -> Callable[[Request], Response]:
    path = _PAGE / name
    headers = {"Cache-Control": "no-cache"}
    page = Response(path.read_bytes(), media_type=_PAGE_TYPES[path.suffix], headers=headers)
    return lambda _request: page


async def _answer_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return invalid(error).response()


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not for this path; use {(error.headers or {}).get('Allow', 'another')}"
    elif error.status_code == 404:
        message = "nothing is at this path"
    else:
        message = f"the body cannot be read: {error.detail}"
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _answer_fault(request: Request, error: Exception) -> JSONResponse:
    """Log the traceback of an error of our own under a number, and send the number to the client."""
    number = secrets.token_hex(4)
    LOG.error("%s %s failed (%s)", request.method, request.url.path, number, exc_info=error)
    message = f"this should not have happened; the server's log tells more under {number}"
    return JSONResponse({"error": message}, 500)
