"""Several features of the same images in one pass."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from PIL import Image

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError, FileExtractor, RegionFeatures


class SeveralExtractor(FileExtractor):
    """Feeds each image, read and decoded once, to extractors of different names; their features stand under one key.

    An image that one of them cannot use is skipped for all. `of` are the arguments of :func:`build_extractor` for each.
    """

    name = "several"

    def __init__(self, of: Sequence[Mapping[str, Any]], device: str = "cpu") -> None:
        self._extractors = [cast("FileExtractor", build_extractor(**options, device=device)) for options in of]
        self._names = [extractor.name for extractor in self._extractors]
        if len(set(self._names)) < len(self._names):
            raise ExtractorError(f"features of one image need different names, got {', '.join(self._names)}")

    def prepare(self, data: bytes, image: Image.Image, /) -> tuple[Any, ...]:
        """Return one image as each of the models takes it."""
        return tuple(extractor.prepare(data, image) for extractor in self._extractors)

    def __call__(self, items: Sequence[tuple[Any, ...]]) -> list[Mapping[str, RegionFeatures]]:
        """Return for each image of a batch the features by name."""
        inputs = zip(*items, strict=True)
        columns = (extractor(column) for extractor, column in zip(self._extractors, inputs, strict=True))
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]

    def identity(self) -> dict[str, Any]:
        """The identities of all."""
        return {"extractor": self.name, "of": [extractor.identity() for extractor in self._extractors]}
