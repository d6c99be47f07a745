"""Published features as an extractor: rows of npy files, entries of HDF5 files."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.features.extractor import ExtractorError, FeaturesNF, checked_features
from preprocessing.features.images import ImageError
from preprocessing.reading import damage_as

_VERSION = 1
_OPEN_FILES = 16
_IN_HDF5 = ".hdf5#"
# Far above any published set of regions (100 x 2048), far below what would exhaust memory.
_MAX_VALUES = 1 << 26


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
    return checked_features(np.atleast_2d(features[int(row)]))


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
        return checked_features(entry[()])


@lru_cache(maxsize=_OPEN_FILES)
def _open_hdf5(path: str) -> Any:
    import h5py

    with damage_as(ExtractorError, f"{path} cannot be read as an HDF5 file", "download it again"):
        return h5py.File(path, "r")
