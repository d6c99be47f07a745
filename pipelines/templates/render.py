"""Render the templates of this folder; whatever is inserted into them is escaped, images lie inside the page."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> Markup:
    """Render a template by its name in this folder, escaping every value that is not `Markup` already."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def data_uri(content: bytes, kind: str) -> str:
    """Return the bytes of an image file as a data URI; `kind` is "jpeg" or "png"."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _cells(row: Sequence[str], headers: Sequence[str]) -> Sequence[str]:
    if len(row) != len(headers):
        raise ValueError(f"a table's row has {len(row)} cells for {len(headers)} columns: {list(row)}")
    return row


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["cells_for"] = _cells
_TEMPLATES.tests["number"] = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?%?").fullmatch
