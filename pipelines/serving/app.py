"""The web application: a page, searches by text or image, images, relevance maps, and a health check."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.routing import Route

from pipelines.serving import metrics
from pipelines.serving.queries import (
    Answers,
    Base64Query,
    BatchQuery,
    Found,
    ImageQuery,
    LikeQuery,
    Maps,
    ModelFacts,
    Refusal,
    RelevanceQuery,
    TextQuery,
    invalid,
    require_json,
    require_single,
)
from pipelines.serving.replica import IMAGE_TYPES
from pipelines.serving.request_error import RequestError

LOG = logging.getLogger(__name__)

# Calls a method of a replica of the model by its name; a refusal, a RequestError, is returned or raised.
Ask = Callable[..., Awaitable[Any]]

_PAGES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def build_app(ask: Ask) -> FastAPI:
    """Build the application over replicas of a model, for requests that have passed the guard."""

    async def answered(method: str, *arguments: Any) -> Any:
        found = await ask(method, *arguments)
        if isinstance(found, RequestError):
            raise found
        return found

    app = FastAPIOffline(
        title="Image-text search",
        generate_unique_id_function=lambda route: route.name,
        description="Searches a gallery of images and captions with a text or an image.",
        redoc_url=None,
        redirect_slashes=False,
        routes=[Route(path, _page(*page)) for path, page in _PAGES.items()],
        exception_handlers=dict.fromkeys((RequestError, RequestValidationError, HTTPException, Exception), _answer),
        responses={"4XX": {"model": Refusal}, "5XX": {"model": Refusal}},
    )
    _add_searches(app, answered)
    _add_gallery(app, answered)
    return app


def _add_searches(app: FastAPI, ask: Ask) -> None:
    @app.post("/search", tags=["searches"], dependencies=[Depends(require_json)], response_model=Found)
    async def search(query: TextQuery) -> Any:
        """Search with a text."""
        return await ask("search_text", query.text, *query.wanted())

    @app.post("/search/batch", tags=["searches"], dependencies=[Depends(require_json)], response_model=Answers)
    async def search_batch(query: BatchQuery) -> Any:
        """Search with several texts."""
        return {"answers": await ask("search_texts", query.texts, *query.wanted())}

    @app.post("/search/image", tags=["searches"], dependencies=[Depends(require_single)], response_model=Found)
    async def search_image(image: UploadFile, query: Annotated[ImageQuery, Query()]) -> Any:
        """Search with an image."""
        if image.content_type not in IMAGE_TYPES:
            raise RequestError(415, f"image: its Content-Type has to be one of {', '.join(IMAGE_TYPES)}")
        data = await image.read()
        return await ask("search_image", data, image.content_type, *query.wanted())

    @app.post("/search/base64", tags=["searches"], dependencies=[Depends(require_json)], response_model=Found)
    async def search_base64(query: Base64Query) -> Any:
        """Search with an image in base64."""
        return await ask("search_image", query.image, None, *query.wanted())

    @app.post("/search/like", tags=["searches"], dependencies=[Depends(require_json)], response_model=Found)
    async def search_like(query: LikeQuery) -> Any:
        """Search for images that are like one of the gallery."""
        return await ask("search_like", query.image_id, query.k, query.where)

    @app.post("/relevance", tags=["searches"], dependencies=[Depends(require_json)], response_model=Maps)
    async def relevance(query: RelevanceQuery) -> Any:
        """Locate the parts of a text in an image."""
        return await ask("relevance", query.text, query.image_id)


def _add_gallery(app: FastAPI, ask: Ask) -> None:
    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Answer once a replica of the model does."""
        await ask("facts")
        return {"status": "ok"}

    @app.get("/model", tags=["service"], response_model=ModelFacts)
    async def model() -> Any:
        """Describe the model and its gallery, and the limits of queries."""
        return await ask("facts")

    @app.get(metrics.PATH, tags=["service"], responses={200: {"content": {"text/plain": {}}}})
    async def exposed() -> Response:
        """Return the metrics of the service for Prometheus."""
        with suppress(RequestError, TimeoutError):  # then the model is the last one that was known
            async with asyncio.timeout(1):
                metrics.SERVED.info(await ask("served"))
        return metrics.exposed()

    shown: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}

    @app.get("/images/{image_id:path}", tags=["gallery"], response_class=Response, responses=shown)
    async def image(image_id: str, full: bool = False) -> Response:
        """Return one image of the gallery, small or in its full size."""
        headers = {"Cache-Control": "private, max-age=60"}
        return Response(await ask("image", image_id, full), media_type="image/jpeg", headers=headers)


def _page(name: str, media_type: str) -> Callable[[Request], Response]:
    content = Path(__file__).with_name("page").joinpath(name).read_bytes()
    page = Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})
    return lambda _request: page


async def _answer(request: Request, error: Exception) -> Response:
    """Answer with the message of a refusal; an error of our own is logged under a number, which the client is told."""
    if isinstance(error, RequestError):
        return error.response()
    if isinstance(error, RequestValidationError):
        return invalid(error).response()
    if not isinstance(error, HTTPException):
        number = request.scope.get("request_id", "")
        LOG.error("%s %s failed (%s)", request.method, request.url.path, number, exc_info=error)
        message = f"this should not have happened; the server's log tells more under {number}"
        return RequestError(500, message).response()
    if error.status_code == 405:
        message = f"{request.method} is not for this path; use {(error.headers or {}).get('Allow', 'another')}"
    elif error.status_code == 404:
        message = "nothing is at this path"
    else:
        message = f"the body cannot be read: {error.detail}"
    return RequestError(error.status_code, message, error.headers).response()
