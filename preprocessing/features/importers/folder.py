"""A folder of files, one an image: MILVLG's .npz of regions, and grid-feats-vqa's .pth of a feature map."""

import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from preprocessing.features.extractor import ExtractorError, Grid
from preprocessing.features.images import ImageError
from preprocessing.features.importers.source import MAX_VALUES, Array, PublishedRegions, checked_regions
from preprocessing.reading import damage_as, reason


class NpzFolder:
    """`IMAGE.npz`, also in subfolders, with x (N, F), bbox (N, 4), num_bbox, image_h and image_w (MILVLG's detector).

    The member `info` of such files, with the labels, is a pickled dictionary: it is not read.
    """

    def __init__(self, path: Path) -> None:
        self._path = _folder(path, ".npz")

    def places(self) -> Iterator[tuple[str, Path]]:
        """Paths in the folder without ending, and whole paths."""
        return _files(self._path, ".npz")

    def read(self, image_id: str, place: Path) -> PublishedRegions:
        """The regions of a file."""
        try:
            with place.open("rb") as file:
                return read_npz(file, image_id)
        except OSError as error:
            raise ImageError(f"cannot be read: {error.strerror or error}") from error


def read_npz(file: BinaryIO, image_id: str) -> PublishedRegions:
    """Return the regions of an npz file with MILVLG's names; ImageError if damaged, or if it holds objects."""
    with damage_as(ImageError, "not a readable npz file", "copy it again"), zipfile.ZipFile(file) as archive:
        features = _member(archive, "x")
        boxes = _member(archive, "bbox") if "bbox.npy" in archive.namelist() else None
        sides = [_number(archive, name) for name in ("image_w", "image_h")]
        count = _number(archive, "num_bbox")
    if count is not None and count != len(features):
        raise ImageError(f"num_bbox is {count}, x has {len(features)} rows")
    size = (sides[0], sides[1]) if sides[0] is not None and sides[1] is not None else None
    return checked_regions(image_id, features, boxes, size)


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    if f"{name}.npy" not in archive.namelist():
        raise ImageError(f"there is no array {name!r}, but {', '.join(archive.namelist())[:200] or 'nothing'}")
    if archive.getinfo(f"{name}.npy").file_size > 8 * MAX_VALUES:
        raise ImageError(f"the array {name!r} is larger than any set of regions")
    with archive.open(f"{name}.npy") as member:
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _number(archive: zipfile.ZipFile, name: str) -> int | None:
    if f"{name}.npy" not in archive.namelist():
        return None
    value = _member(archive, name)
    if value.size != 1 or value.dtype.kind not in "iuf":
        raise ImageError(f"{name} is {value.dtype} of shape {value.shape}, one number is needed")
    return int(value.reshape(()))


class PthFolder:
    """`IMAGE.pth`, also in subfolders, of a tensor (1, F, h, w): its cells row by row are the set (grid-feats-vqa)."""

    def __init__(self, path: Path) -> None:
        self._path = _folder(path, ".pth")

    def places(self) -> Iterator[tuple[str, Path]]:
        """Paths in the folder without ending, and whole paths."""
        return _files(self._path, ".pth")

    def read(self, image_id: str, place: Path) -> PublishedRegions:
        """The cells of a file."""
        import torch  # takes seconds, and the other forms do without

        try:
            tensor = torch.load(place, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ImageError("it holds other objects than tensors; nothing in it was executed") from error
        except Exception as error:
            raise ImageError(f"not a readable PyTorch file: {reason(error)}") from error
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4 or tensor.shape[0] != 1:
            found = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ImageError(f"{found} where a tensor of shape (1, F, h, w) is needed")
        if not tensor.is_floating_point() or tensor.numel() > MAX_VALUES:
            raise ImageError(f"{tensor.numel()} numbers of the type {tensor.dtype} are no feature map")
        cells = checked_regions(image_id, tensor[0].flatten(1).T.float().numpy())
        return replace(cells, grid=Grid(tensor.shape[2], tensor.shape[3]))


def _folder(path: Path, ending: str) -> Path:
    if not path.is_dir():
        raise ExtractorError(f"{path} is no folder; name the folder that holds IMAGE{ending}")
    return path


def _files(folder: Path, ending: str) -> Iterator[tuple[str, Path]]:
    found = False
    for path in sorted(folder.rglob(f"*{ending}")):
        found = True
        yield path.relative_to(folder).as_posix().removesuffix(ending), path
    if not found:
        raise ExtractorError(f"{folder} holds no file IMAGE{ending}; name the folder of the published features")
