"""Published features as an extractor: an image of the data set is joined with its features by its name."""

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from preprocessing.datasets.tar_members import TarMember
from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError
from preprocessing.features.importers import open_source
from preprocessing.features.importers.source import by_image_key, image_key

_VERSION = 1
NO_FEATURES = "no features of this image in the source"


class ImportedExtractor:
    """Takes the features, boxes and labels of an image from a published file or folder (`importers.FORMS`).

    The image is known by its name (see :func:`image_key`). The source is opened when it is first asked for: a model
    that was trained on it reads captions without it. Ids and places are in memory, features are read one by one. Of an
    image that is twice in the source the last one counts; two names of one image are an ExtractorError.
    """

    def __init__(self, source: str, form: str) -> None:
        self.name = "region"
        self._source, self._form = source, form
        self._opened: _Contents | None = None
        self._lock = threading.Lock()

    def load(self, uri: str) -> RegionFeatures:
        """Return the published regions of the image of a URI."""
        return self._contents().regions(_key(uri))

    def __call__(self, items: Sequence[RegionFeatures]) -> list[RegionFeatures]:
        """Return the features as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules, and name, size and time of change of each file of the source; raises ExtractorError."""
        self._contents()
        digest = _digest(Path(self._source).expanduser())
        return {"extractor": "imported", "version": _VERSION, "form": self._form, "files_sha256": digest}

    def _contents(self) -> "_Contents":
        with self._lock:
            if self._opened is None:
                self._opened = _Contents(self._source, self._form)
            return self._opened


class _Contents:
    """An open source, with the place of each image in it, and the companions that all images of a shard must have."""

    def __init__(self, source: str, form: str) -> None:
        self._source = open_source(source, form)
        self._places = by_image_key(self._source.places(), source)
        if not self._places:
            raise ExtractorError(f"{source} holds no image; is it the file that was published, and complete?")
        self._companions = self._kinds(source)

    def regions(self, key: str) -> RegionFeatures:
        """The regions of an image, with the companions that the first readable image has."""
        found = self._places.get(key)
        if found is None:
            raise ImageError(NO_FEATURES)
        regions = self._source.read(found[1])
        lacking = [name for name in self._companions if name not in regions.companions]
        if lacking:
            raise ImageError(f"no {', '.join(lacking)}, which the other images of the source have")
        return replace(regions, companions={name: regions.companions[name] for name in self._companions})

    def _kinds(self, source: str) -> tuple[str, ...]:
        """Return the companions' names: those of the first readable image, as a shard's samples are all alike."""
        first_reason = ""
        for _, place in self._places.values():
            try:
                return tuple(self._source.read(place).companions)
            except ImageError as error:
                first_reason = first_reason or str(error)
        raise ExtractorError(f"none of the {len(self._places):,} images of {source} can be used: {first_reason}")


def check_image_names(uris: Iterable[str]) -> None:
    """Raise ExtractorError if two images of a data set would get the features of one."""
    by_image_key(((uri, None) for uri in uris), "the data set", _key)


def _key(uri: str) -> str:
    member = TarMember.parse(uri)
    return image_key(uri if member is None else member.name)


def _digest(source: Path) -> str:
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        name = os.path.relpath(path, source) if source.is_dir() else path.name
        digest.update(f"{name}\t{status.st_size}\t{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
