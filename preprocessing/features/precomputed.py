"""Published features as an extractor: each image is a row of an npy file."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.features.extractor import FeaturesNF
from preprocessing.features.images import ImageError

_VERSION = 1
_OPEN_FILES = 16


class PrecomputedExtractor:
    """Takes the features of an image from the row that its URI, `/abs/{split}_ims.npy#ROW`, names.

    The files are memory-mapped: a row is read when it is asked for, whatever the size of the file.
    """

    name = "region"

    def load(self, uri: str) -> FeaturesNF:
        """The row (N, F) as float16; a row of a 2-d file is a set of one vector.

        Raises:
            ImageError: no such file or row, or values that are not finite in float16.
        """
        path, mark, row = uri.rpartition("#")
        if not mark or not (row.isascii() and row.isdecimal()):
            raise ImageError(f"not a row of a feature file: {uri!r}; /path/SPLIT_ims.npy#ROW is needed")
        features = _open(path)
        if int(row) >= len(features):
            raise ImageError(f"row {row} of a file of {len(features)} rows")
        with np.errstate(over="ignore"):
            values = np.array(features[int(row)], dtype=np.float16, order="C", ndmin=2)
        if not np.isfinite(values).all():
            raise ImageError("features that are NaN, infinite or beyond the range of float16 (65504)")
        return values

    def __call__(self, items: Sequence[FeaturesNF]) -> list[FeaturesNF]:
        """The rows as `load` gave them."""
        return list(items)

    def identity(self) -> dict[str, Any]:
        """The reading rules; what is in the file is told by the digest of the data set, not here."""
        return {"extractor": "precomputed", "version": _VERSION}


@lru_cache(maxsize=_OPEN_FILES)
def _open(path: str) -> npt.NDArray[np.floating[Any]]:
    try:
        features = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ImageError(f"not a readable feature file: {error}") from error
    if not isinstance(features, np.ndarray) or features.ndim not in (2, 3) or features.dtype.kind != "f":
        raise ImageError("not a feature file: an array of floats of shape (images, regions, features) is needed")
    return features
