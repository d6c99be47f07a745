"""Several features of the same images in one pass."""

from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from preprocessing.features.extractor import ExtractorError, FileExtractor, RegionFeatures


class SeveralExtractor(FileExtractor):
    """Feeds each image, read and decoded once, to extractors of different names; their features stand under one key.

    An image that one of them cannot use is skipped for all.
    """

    name = "several"

    def __init__(self, extractors: Sequence[FileExtractor]) -> None:
        names = [extractor.name for extractor in extractors]
        if len(set(names)) < len(names):
            raise ExtractorError(f"features of one image need different names, got {', '.join(names)}")
        self._extractors = tuple(extractors)

    def prepare(self, data: bytes, image: Image.Image, /) -> tuple[Any, ...]:
        """Return one image as each of the models takes it."""
        return tuple(extractor.prepare(data, image) for extractor in self._extractors)

    def __call__(self, items: Sequence[tuple[Any, ...]]) -> list[Mapping[str, RegionFeatures]]:
        """Return for each image of a batch the features by name."""
        columns = [
            extractor(column) for extractor, column in zip(self._extractors, zip(*items, strict=True), strict=True)
        ]
        names = [extractor.name for extractor in self._extractors]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def identity(self) -> dict[str, Any]:
        """The identities of all."""
        return {"extractor": self.name, "of": [extractor.identity() for extractor in self._extractors]}
