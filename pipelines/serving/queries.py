"""The queries of clients: JSON bodies and query strings, checked against their schema."""

from __future__ import annotations

import unicodedata
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from ray.exceptions import RayActorError
from starlette.requests import Request

from pipelines.retrieval.search_model import Target
from pipelines.serving.limits import MAX_RESULTS, MAX_TEXT
from pipelines.serving.request_error import RequestError

_DEFAULT_RESULTS = 12


def _readable(text: str) -> str:
    """Strip a text; refuse an empty one and control characters."""
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if any(unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\t\n\r" for letter in text):
        raise ValueError("holds control characters")
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_readable)]
Count = Annotated[int, Field(ge=1, le=MAX_RESULTS)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextQuery(_Query):
    """A search with a text."""

    text: Text
    k: Count = _DEFAULT_RESULTS
    target: Target = "images"


class ImageQuery(_Query):
    """The parameters of a search with an image."""

    k: Count = _DEFAULT_RESULTS
    target: Target = "captions"


class RelevanceQuery(_Query):
    """A question where in an image the words of a text are."""

    text: Text
    image_id: Annotated[str, Field(min_length=1, max_length=1000)]


QueryT = TypeVar("QueryT", bound=_Query)


async def json_query(request: Request, kind: type[QueryT]) -> QueryT:
    """Return the JSON body of a request as a query."""
    body = await full_body(request)
    try:
        # Strict: neither 3.0 nor "3" is a number of results.
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise _refused(error) from None


async def full_body(request: Request) -> bytes:
    """Return the body of a request, which the guard has read and limited; refuse an empty one."""
    try:
        body = await request.body()
    except RayActorError:
        # The proxy, which has the body, ended first.
        raise RequestError(503, "the service is being stopped") from None
    if not body:
        raise RequestError(400, "the body is empty")
    return body


def url_query(request: Request, kind: type[QueryT]) -> QueryT:
    """Return the query string of a request as a query."""
    given = request.query_params.multi_items()
    if len(given) > len(dict(given)):
        raise RequestError(422, "the address names a parameter twice")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        raise _refused(error) from None


def _refused(error: ValidationError) -> RequestError:
    """Return the first error without the client's input, which may be long."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is no JSON: {reason}")
    # The name of an unknown key may be long as well.
    place = ".".join(str(part) for part in first["loc"])[:60]
    return RequestError(422, f"{place or 'the body'}: {reason}")
