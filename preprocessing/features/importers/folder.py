"""A folder of npz files of regions, one an image, as MILVLG's detector writes them."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError
from preprocessing.features.importers.source import MAX_VALUES, Array, checked_regions
from preprocessing.reading import damage_as


class NpzFolder:
    """Files `IMAGE.npz`, also in subfolders, with x (N, F), bbox (N, 4) and num_bbox (MILVLG).

    The member `info` of such files, with the labels, is a pickled dictionary: it is not read.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ExtractorError(f"{folder} is not a folder; name the folder with the files IMAGE.npz")
        self._folder = folder

    def places(self) -> Iterator[tuple[str, Path]]:
        """Paths in the folder without ending, and complete paths."""
        files = sorted(self._folder.rglob("*.npz"))
        if not files:
            raise ExtractorError(f"{self._folder} holds no file IMAGE.npz; name the folder of the published features")
        for path in files:
            yield path.relative_to(self._folder).as_posix().removesuffix(".npz"), path

    def read(self, place: Path) -> RegionFeatures:
        """The regions of a file; ImageError if it is damaged, or if it holds objects."""
        with damage_as(ImageError, "not a readable npz file", "copy it again"), zipfile.ZipFile(place) as archive:
            features = _member(archive, "x")
            boxes = _member(archive, "bbox") if "bbox.npy" in archive.namelist() else None
            count = _member(archive, "num_bbox") if "num_bbox.npy" in archive.namelist() else np.array(len(features))
        if count.size != 1 or count.item() != len(features):
            raise ImageError(f"num_bbox is {count}, x has {len(features)} rows")
        return checked_regions(features, boxes)


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    if f"{name}.npy" not in archive.namelist():
        raise ImageError(f"there is no array {name!r}, but {', '.join(archive.namelist())[:200] or 'nothing'}")
    if archive.getinfo(f"{name}.npy").file_size > 8 * MAX_VALUES:
        raise ImageError(f"the array {name!r} is larger than any set of regions")
    with archive.open(f"{name}.npy") as member:
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array
