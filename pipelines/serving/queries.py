"""The queries of clients and the answers to them: what is sent, checked against its schema, and what is returned."""

import unicodedata
from typing import Annotated, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, Base64Bytes, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pipelines.retrieval.filters import LONGEST
from pipelines.retrieval.options import Target
from pipelines.serving.limits import MAX_RESULTS, MAX_TEXT, MAX_TEXTS
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
# Only images for which a condition on the columns of the gallery holds.
Where = Annotated[str, Field(max_length=LONGEST)]
ImageId = Annotated[str, Field(min_length=1, max_length=1000)]


def _strict(example: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a JSON body: neither 3.0 nor "3" is a number of results."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


def _payload(text: Any) -> Any:
    """Return the base64 of a data URI (`data:image/jpeg;base64,...`), or of a text as it is."""
    is_uri = isinstance(text, str) and text.startswith("data:")
    return text.partition(";base64,")[2] if is_uri else text


# The smallest GIF: one pixel.
_GIF = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="
_ImageBytes = Annotated[
    Base64Bytes,
    BeforeValidator(_payload),
    Field(min_length=1, strict=False),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


class _Wanted(BaseModel):
    """What is asked of a search, whatever it is with."""

    k: Count = _DEFAULT_RESULTS
    # By default images for a text; for an image captions, or images in a gallery without any.
    target: Target | None = None
    # Results of a lower confidence are left out.
    min_confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0
    where: Where = ""

    def wanted(self) -> list[Any]:
        """Return number, target, confidence and condition."""
        return [self.k, self.target, self.min_confidence, self.where]


class TextQuery(_Wanted):
    """A search with a text."""

    model_config = _strict({"text": "a dog in the snow", "k": 5})

    text: Text
    target: Target = "images"


class BatchQuery(_Wanted):
    """Searches with several texts, each for the same number of results."""

    model_config = _strict({"texts": ["a dog in the snow", "two children on a swing"], "k": 3})

    texts: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    target: Target = "images"


class ImageQuery(_Wanted):
    """The parameters of a search with an image, in the address."""

    model_config = ConfigDict(extra="forbid")


class Base64Query(_Wanted):
    """A search with an image in base64, also as a data URI."""

    model_config = _strict({"image": _GIF, "k": 5})

    image: _ImageBytes


class LikeQuery(BaseModel):
    """A search for images that are like one of the gallery, which is not among them."""

    model_config = _strict({"image_id": "photo.jpg", "k": 5})

    image_id: ImageId
    k: Count = _DEFAULT_RESULTS
    where: Where = ""


class RelevanceQuery(BaseModel):
    """A question in which parts of an image the words of a text are."""

    model_config = _strict({"text": "a brown dog", "image_id": "photo.jpg"})

    text: Text
    image_id: ImageId


class Result(BaseModel):
    """An item of the gallery: its caption, or an image's first one, and the address of an image.

    The confidence is the probability that it is relevant, null if the model is not calibrated for such a search.
    `columns` are those of the table that the images came from.
    """

    id: str
    similarity: float
    confidence: float | None = None
    caption: str | None
    image_url: str | None = None
    columns: dict[str, Any] = {}


class Found(BaseModel):
    """The nearest items of the gallery, best first, and a warning if the model knows little of the query."""

    model: str
    target: Target
    warning: str
    results: list[Result]


class Phrase(BaseModel):
    """A part of a text: its similarity with the image, and the relevance of each cell, row by row, 1 on average."""

    text: str
    similarity: float
    cells: list[float]


class Maps(BaseModel):
    """The places of the parts of a text in an image, as a grid of rows and columns."""

    rows: int
    columns: int
    phrases: list[Phrase]


class ModelFacts(BaseModel):
    """A model, its gallery, and the limits of queries."""

    model: str
    images: int
    captions: int
    takes_images: bool
    finds_regions: bool
    max_results: int
    max_text: int
    max_image_bytes: int
    image_types: list[str]
    # What searches can choose by, and what values are.
    columns: dict[str, str]


class Refusal(BaseModel):
    """The reason why a request was refused."""

    error: str


class Answers(BaseModel):
    """What each text of a batch has found, in their order, or why it cannot be searched with."""

    answers: list[Found | Refusal]


def require_json(request: Request) -> None:
    """Refuse a body of another type than JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = "Content-Type has to be application/json; an image is sent to /search/image or /search/base64"
        raise RequestError(415, message, {"Accept-Post": "application/json"})


def require_single(request: Request) -> None:
    """Refuse an address that names a parameter twice, and a body that is not a form."""
    given = request.query_params.multi_items()
    if len(given) > len(dict(given)):
        raise RequestError(422, "the address names a parameter twice")
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        message = "Content-Type has to be multipart/form-data with the file as its part 'image'"
        raise RequestError(415, message, {"Accept-Post": "multipart/form-data"})


def invalid(error: RequestValidationError) -> RequestError:
    """Return the first error without the client's input, which may be long."""
    first = error.errors()[0]
    # It begins with "body" or "query", then come keys; the name of an unknown key may be long as well.
    place = ".".join(str(part) for part in first["loc"][1:])[:60]
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is not JSON: {first['ctx']['error']}")
    if first["type"] == "missing" and not place:
        return RequestError(400, "the body is empty")
    return RequestError(422, f"{place or 'the body'}: {first['msg'].removeprefix('Value error, ')}")
