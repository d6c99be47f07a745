"""Images themselves as the "feature": JPEG files for networks that are trained from pixels."""

from collections.abc import Sequence
from typing import Any

from PIL import Image, features

from preprocessing.features.extractor import FileExtractor
from preprocessing.features.images import fitted, image_bytes, is_plain_jpeg

_VERSION = 1
# What is encoded here was encoded before, mostly: a second loss should not be seen.
_QUALITY = 95


class JpegExtractor(FileExtractor):
    """Stores each image as a JPEG file whose largest side is bounded.

    A file that already is such a JPEG (8-bit RGB or grey, upright) keeps its bytes, all others are encoded once. Every
    image is decoded on the way. 640 is COCO's largest side; a crop of 0.6 of it fills 384 pixels.
    """

    name = "jpg"

    def __init__(self, largest_side: int = 640) -> None:
        self._largest_side = largest_side

    def prepare(self, data: bytes, image: Image.Image, /) -> bytes:
        """Return the JPEG file of one image."""
        if max(image.size) <= self._largest_side and is_plain_jpeg(data):
            return data
        if max(image.size) > self._largest_side:
            image = fitted(image, self._largest_side)
        # Colour at full resolution: drawn edges and letters would blur.
        return image_bytes(image, "JPEG", quality=_QUALITY, subsampling=0)

    def __call__(self, items: Sequence[bytes]) -> list[bytes]:
        """Return the files as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The rules, and the libraries that encode: other versions may write other bytes."""
        return {
            "extractor": "images",
            "version": _VERSION,
            "largest_side": self._largest_side,
            "quality": _QUALITY,
            "pillow": Image.__version__,
            "libjpeg": features.version("jpg"),
        }
