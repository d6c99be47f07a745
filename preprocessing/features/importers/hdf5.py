"""HDF5 files with one entry an image or video: a dataset of vectors, or a group with vectors and boxes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError
from preprocessing.features.importers.source import MAX_VALUES, Array, checked_regions
from preprocessing.reading import damage_as

try:
    import h5py
except ImportError:
    h5py = None


class Hdf5File:
    """Entries by image id: a dataset (N, F), as the frames of HGR's videos, or a group of `features` and `boxes`."""

    def __init__(self, path: Path) -> None:
        if h5py is None:
            raise ExtractorError("HDF5 files are read by h5py: pip install 'vse-pipeline[features]'")
        with damage_as(ExtractorError, f"{path} cannot be read as an HDF5 file", "download it again"):
            self._file = h5py.File(path, "r")
        self._path = path

    def places(self) -> Iterator[tuple[str, str]]:
        """Names of the entries."""
        with damage_as(ExtractorError, f"{self._path} is damaged", "download it again"):
            for name in self._file:
                yield name, name

    def read(self, place: str) -> RegionFeatures:
        """The vectors of an entry."""
        with damage_as(ImageError, "damaged entry", "download the file again"):
            if place not in self._file:
                raise ImageError("no features of this name in the file")
            entry = self._file[place]
            if not isinstance(entry, h5py.Group):
                return checked_regions(_values(entry))
            if "features" not in entry:
                raise ImageError(f"a group of {', '.join(entry)[:200] or 'nothing'}; 'features' is needed")
            boxes = _values(entry["boxes"]) if "boxes" in entry else None
            return checked_regions(_values(entry["features"]), boxes)


def _values(entry: Any) -> Array:
    if entry.size is None or entry.size > MAX_VALUES or entry.dtype.kind not in "fiu":
        raise ImageError(f"{entry.dtype} of shape {entry.shape} is not a set of vectors or boxes")
    values: Array = entry[()]
    return values
