"""Published features as an extractor: an image of the data set is joined with its features by its name."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError
from preprocessing.features.importers import image_key, open_source

_VERSION = 1
NO_FEATURES = "no features of this image in the source"


class ImportedExtractor:
    """Takes the features, boxes and labels of an image from a published file or folder (`importers.FORMS`).

    The image is known by its name (see :func:`image_key`); the picture itself is not needed. Ids and places of the
    source are held in memory, features are read as they are asked for. Where an image is twice in the source, as in
    files whose writing was interrupted and went on, the last one counts.

    Args:
        source: file, or folder of files, as published.
        form: one of `importers.FORMS`.

    Raises:
        ExtractorError: the source is not there or not of this form.
    """

    def __init__(self, source: str, form: str) -> None:
        self.name = "grid" if form == "pth" else "region"
        self._form = form
        self._source = open_source(source, form)
        self._places = {image_key(image_id): (image_id, place) for image_id, place in self._source.places()}
        if not self._places:
            raise ExtractorError(f"{source} holds no image; is it the file that was published, and whole?")
        self._digest = _digest(Path(source).expanduser())

    def load(self, uri: str) -> RegionFeatures:
        """What was published of the image of a URI.

        Raises:
            ImageError: nothing, or something damaged.
        """
        found = self._places.get(image_key(uri))
        if found is None:
            raise ImageError(NO_FEATURES)
        regions = self._source.read(*found)
        boxes = {} if regions.boxes is None else {"boxes": regions.boxes}
        return RegionFeatures(regions.features, {**boxes, **regions.labels})

    def __call__(self, items: Sequence[RegionFeatures]) -> list[RegionFeatures]:
        """The features as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules, and name, size and time of change of each file of the source."""
        return {"extractor": "imported", "version": _VERSION, "form": self._form, "files_sha256": self._digest}


def _digest(source: Path) -> str:
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        name = os.path.relpath(path, source) if source.is_dir() else path.name
        digest.update(f"{name}\t{status.st_size}\t{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
