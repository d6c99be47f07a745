"""Published features as extractors: rows of npy files, entries of HDF5 files, lines of bottom-up attention's TSV."""

import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.datasets.tar_members import TarMember
from preprocessing.features.butd.tsv import Place, places, read_regions
from preprocessing.features.extractor import ExtractorError, FeaturesNF, RegionFeatures, checked_regions
from preprocessing.features.images import ImageError
from preprocessing.reading import damage_as

_VERSION = 1
_OPEN_FILES = 16
_IN_HDF5 = ".hdf5#"
# Far above any published set of regions (100 x 2048), far below what would exhaust memory.
_MAX_VALUES = 1 << 26
_FORM = "butd_tsv"
NO_FEATURES = "no features of this image in the source"

# COCO's file names, and its ids padded with zeros.
_COCO = re.compile(r"(?:COCO_[a-z]+\d+_)?0*(\d+)")
_ENDINGS = (".jpg", ".jpeg", ".png")


class PrecomputedExtractor:
    """Takes the features of an image from the place that its URI names.

    `/abs/{split}_ims.npy#ROW` is a row of an array, `/abs/{split}_ft.hdf5#NAME` an entry by its name; no more is read.
    A set of more than `largest_set` vectors gives that number of them, evenly spread from the first to the last.
    """

    name = "region"

    def __init__(self, largest_set: int | None = None) -> None:
        self._largest_set = largest_set

    def load(self, uri: str) -> FeaturesNF:
        """The features (N, F) as float16; a row of a 2-d array is a set of one vector."""
        path, mark, name = uri.partition(_IN_HDF5)
        values = _entry(path + mark.rstrip("#"), name) if mark else _row(uri)
        if self._largest_set is None or len(values) <= self._largest_set:
            return values
        return values[np.round(np.linspace(0, len(values) - 1, self._largest_set)).astype(np.intp)]

    def __call__(self, items: Sequence[FeaturesNF]) -> list[FeaturesNF]:
        """Return the features as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules; the file's contents are covered by the digest of the data set."""
        limit = {} if self._largest_set is None else {"largest_set": self._largest_set}
        return {"extractor": "precomputed", "version": _VERSION, **limit}


def _row(uri: str) -> FeaturesNF:
    path, mark, row = uri.rpartition("#")
    if not mark or not (row.isascii() and row.isdecimal()):
        raise ImageError(f"not a row of a feature file: {uri!r}; /path/SPLIT_ims.npy#ROW is needed")
    features = _open_array(path)
    if int(row) >= len(features):
        raise ImageError(f"row {row} of a file of {len(features)} rows")
    return checked_regions(np.atleast_2d(features[int(row)])).features


@lru_cache(maxsize=_OPEN_FILES)
def _open_array(path: str) -> npt.NDArray[np.floating[Any]]:
    with damage_as(ImageError, "not a readable feature file", "copy it again"):
        features = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(features, np.ndarray) or features.ndim not in (2, 3) or features.dtype.kind != "f":
        raise ImageError("not a feature file: an array of floats of shape (images, regions, features) is needed")
    return features


def _entry(path: str, name: str) -> FeaturesNF:
    file = _open_hdf5(path)
    with damage_as(ImageError, "damaged entry", "download the file again"):
        if name not in file:
            raise ImageError("no features of this name in the file")
        entry = file[name]
        if entry.dtype.kind != "f" or entry.size > _MAX_VALUES:
            raise ImageError(f"{entry.dtype} of shape {entry.shape} is not a set of vectors")
        return checked_regions(entry[()]).features


@lru_cache(maxsize=_OPEN_FILES)
def _open_hdf5(path: str) -> Any:
    import h5py

    with damage_as(ExtractorError, f"{path} cannot be read as an HDF5 file", "download it again"):
        return h5py.File(path, "r")


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
            found = self._places.get(image_key(uri))
        if found is None:
            raise ImageError(NO_FEATURES)
        return read_regions(self._path, found[1])

    def __call__(self, items: Sequence[RegionFeatures]) -> list[RegionFeatures]:
        """Return the features as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules, and name, size and time of change of the source; raises ExtractorError."""
        with self._lock:
            _ = self._places
        status = self._path.stat()
        line = f"{self._path.name}\t{status.st_size}\t{status.st_mtime_ns}\n"
        digest = hashlib.sha256(line.encode()).hexdigest()
        return {"extractor": "imported", "version": _VERSION, "form": _FORM, "files_sha256": digest}

    @cached_property
    def _places(self) -> dict[str, tuple[str, Place]]:
        found = by_image_key(places(self._path), str(self._path))
        if not found:
            raise ExtractorError(f"{self._path} holds no image; is it the file that was published, and complete?")
        return found


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


def by_image_key(names: Iterable[tuple[str, Any]], where: str) -> dict[str, tuple[str, Any]]:
    """Return names with their places by the names' keys; of a name that is there twice the last place counts.

    Raises ExtractorError, which says `where`, for two names of one key: both images would get the features of one.
    """
    found: dict[str, tuple[str, Any]] = {}
    for name, place in names:
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
