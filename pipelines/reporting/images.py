"""The images of a report, inside its page."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from pipelines.templates.render import data_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# An image above this size is a photograph or holds some: as a JPEG it is a fraction of its size.
_PNG_BYTES = 200_000
_WIDEST = 1600


@dataclass(frozen=True)
class ReportImage:
    """An image as a data URI, with the description that is shown below it and read out where it cannot be seen."""

    source: str
    description: str

    @classmethod
    def from_figure(cls, figure: Figure, description: str) -> ReportImage:
        """Draw a matplotlib figure."""
        content = io.BytesIO()
        figure.savefig(content, format="png", bbox_inches="tight", dpi=110)
        return cls.from_png(content.getvalue(), description)

    @classmethod
    def from_png(cls, content: bytes, description: str) -> ReportImage:
        """Take the bytes of a PNG file; a large image is shrunk and becomes a JPEG."""
        if len(content) <= _PNG_BYTES:
            return cls(data_uri(content, "png"), description)
        with Image.open(io.BytesIO(content)) as opened:
            image = opened.convert("RGB")
        image.thumbnail((_WIDEST, 8 * _WIDEST))
        smaller = io.BytesIO()
        image.save(smaller, "JPEG", quality=82)
        return cls(data_uri(smaller.getvalue(), "jpeg"), description)
