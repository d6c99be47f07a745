"""A folder of files, one an image: MILVLG's .npz of regions, and grid-feats-vqa's .pth of a feature map."""

import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from preprocessing.features.extractor import ExtractorError, Grid
from preprocessing.features.images import ImageError
from preprocessing.features.importers.source import MAX_VALUES, Array, PublishedRegions, checked_regions
from preprocessing.reading import damage_as, reason


class ImageFiles:
    """Files `IMAGE` + ending in a folder, also in subfolders, each read by a function."""

    def __init__(self, folder: Path, ending: str, read: Callable[[Path], PublishedRegions]) -> None:
        if not folder.is_dir():
            raise ExtractorError(f"{folder} is no folder; name the folder that holds IMAGE{ending}")
        self._folder, self._ending = folder, ending
        self.read = read

    def places(self) -> Iterator[tuple[str, Path]]:
        """Paths in the folder without ending, and complete paths."""
        files = sorted(self._folder.rglob(f"*{self._ending}"))
        if not files:
            raise ExtractorError(
                f"{self._folder} holds no file IMAGE{self._ending}; name the folder of the published features"
            )
        for path in files:
            yield path.relative_to(self._folder).as_posix().removesuffix(self._ending), path


def npz_folder(folder: Path) -> ImageFiles:
    """Open `IMAGE.npz` files with x (N, F), bbox (N, 4), num_bbox, image_h and image_w (MILVLG's detector).

    The member `info` of such files, with the labels, is a pickled dictionary: it is not read.
    """
    return ImageFiles(folder, ".npz", _read_npz_file)


def pth_folder(folder: Path) -> ImageFiles:
    """Open `IMAGE.pth` files of a tensor (1, F, h, w): its cells row by row are the set (grid-feats-vqa)."""
    return ImageFiles(folder, ".pth", _read_pth)


def _read_npz_file(path: Path) -> PublishedRegions:
    with damage_as(ImageError, "cannot be read", "copy it again"), path.open("rb") as file:
        return read_npz(file)


def read_npz(file: BinaryIO) -> PublishedRegions:
    """Return the regions of an npz file with MILVLG's names; ImageError if damaged, or if it holds objects."""
    with damage_as(ImageError, "not a readable npz file", "copy it again"), zipfile.ZipFile(file) as archive:
        features = _member(archive, "x")
        boxes = _member(archive, "bbox") if "bbox.npy" in archive.namelist() else None
        width, height, count = (_number(archive, name) for name in ("image_w", "image_h", "num_bbox"))
    if count is not None and count != len(features):
        raise ImageError(f"num_bbox is {count}, x has {len(features)} rows")
    size = None if width is None or height is None else (width, height)
    return checked_regions(features, boxes, size)


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


def _read_pth(path: Path) -> PublishedRegions:
    import torch  # takes seconds, and the other forms do without

    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ImageError("it holds other objects than tensors; nothing in it was executed") from error
    except Exception as error:
        raise ImageError(f"not a readable PyTorch file: {reason(error)}") from error
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4 or tensor.shape[0] != 1:
        found = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ImageError(f"{found} where a tensor of shape (1, F, h, w) is needed")
    if not tensor.is_floating_point() or tensor.numel() > MAX_VALUES:
        raise ImageError(f"{tensor.numel()} numbers of the type {tensor.dtype} are no feature map")
    return checked_regions(tensor[0].flatten(1).T.float().numpy(), grid=Grid(tensor.shape[2], tensor.shape[3]))
