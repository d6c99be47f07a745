"""Published features as an extractor: an image of the data set is joined with its features by its name."""

import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from preprocessing.datasets.tar_members import TarMember
from preprocessing.features.butd.tsv import ButdTsv
from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError

_VERSION = 1
_FORM = "butd_tsv"
NO_FEATURES = "no features of this image in the source"

# COCO's file names, and its ids padded with zeros.
_COCO = re.compile(r"(?:COCO_[a-z]+\d+_)?0*(\d+)")
_ENDINGS = (".jpg", ".jpeg", ".png")


class ImportedExtractor:
    """Takes the features, boxes and labels of an image from a file as bottom-up attention's authors published it.

    The image is known by its name (see :func:`image_key`). The source is opened when it is first asked for: a model
    that was trained on it reads captions without it. Ids and places are in memory, features are read one by one. Of an
    image that is twice in the source the last one counts; two names of one image are an ExtractorError.
    """

    name = "region"

    def __init__(self, source: str, form: str = _FORM) -> None:
        if form != _FORM:
            raise ExtractorError(f"published features in the form {form} are not read any more: convert to {_FORM}")
        self._path = Path(source).expanduser().absolute()
        self._lock = threading.Lock()

    def load(self, uri: str) -> RegionFeatures:
        """Return the published regions of the image of a URI."""
        with self._lock:
            source, places = self._opened
        found = places.get(image_key(uri))
        if found is None:
            raise ImageError(NO_FEATURES)
        return source.read(found[1])

    def __call__(self, items: Sequence[RegionFeatures]) -> list[RegionFeatures]:
        """Return the features as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules, and name, size and time of change of the source; raises ExtractorError."""
        with self._lock:
            _ = self._opened
        status = self._path.stat()
        line = f"{self._path.name}\t{status.st_size}\t{status.st_mtime_ns}\n"
        digest = hashlib.sha256(line.encode()).hexdigest()
        return {"extractor": "imported", "version": _VERSION, "form": _FORM, "files_sha256": digest}

    @cached_property
    def _opened(self) -> tuple[ButdTsv, dict[str, tuple[str, Any]]]:
        source = ButdTsv(self._path)
        places = by_image_key(source.places(), str(self._path))
        if not places:
            raise ExtractorError(f"{self._path} holds no image; is it the file that was published, and complete?")
        return source, places


def image_key(name: str) -> str:
    """Return the key by which images of a source and a data set are matched, from an id, a file name or a path.

    The name without folders and ending; of COCO's names and of numbers the number alone, without leading zeros:
    `COCO_val2014_000000000042.jpg`, `000000000042` and `42` are one image.
    """
    member = TarMember.parse(name)
    stem = PurePath(name if member is None else member.name).name
    while stem.lower().endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    number = _COCO.fullmatch(stem)
    return number[1] if number else stem


def by_image_key(places: Iterable[tuple[str, Any]], where: str) -> dict[str, tuple[str, Any]]:
    """Return names with their places by the names' keys; of a name that is there twice the last place counts.

    Raises ExtractorError, which says `where`, for two names of one key: both images would get the features of one.
    """
    found: dict[str, tuple[str, Any]] = {}
    for name, place in places:
        key = image_key(name)
        other, _ = found.get(key, (name, place))
        if other != name:
            raise ExtractorError(
                f"{where}: {other} and {name} count as one image, which would get the features of either; folders, "
                "endings and leading zeros do not tell images apart: rename one of them"
            )
        found[key] = (name, place)
    return found


def check_image_names(uris: Iterable[str]) -> None:
    """Raise ExtractorError if two images of a data set would get the features of one."""
    by_image_key(((uri, None) for uri in uris), "the data set")
