"""The interface of readers of published features: the regions of an image, the protocol, and the checks.

Shapes: N regions, F feature width.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from preprocessing.features.extractor import ExtractorError, RegionFeatures
from preprocessing.features.images import ImageError

Array = npt.NDArray[Any]
Place = TypeVar("Place")
# What is known of each region besides its vector and its box: numbers of classes int32, confidences float32.
LABELS = {"objects": np.int32, "object_scores": np.float32, "attributes": np.int32, "attribute_scores": np.float32}
# Far above any published set of regions (100 x 2048), far below what would exhaust memory.
MAX_VALUES = 1 << 26

# COCO's file names, and its ids padded with zeros.
_COCO = re.compile(r"(?:COCO_[a-z]+\d+_)?0*(\d+)")
_ENDINGS = (".npz", ".npy", ".jpg", ".jpeg", ".png", ".mp4", ".avi", ".mkv", ".webm")


class FeatureSource(Protocol):
    """Features of many images in one of the published forms, each read by its place: an offset, a path, a key."""

    def places(self) -> Iterator[tuple[str, Any]]:
        """Each image's id with its place, in the order of the source; ExtractorError if it is not of this form."""

    def read(self, place: Any) -> RegionFeatures:
        """Return the regions of the image at a place, from any thread; the ImageError says why it cannot be used."""


def image_key(name: str) -> str:
    """Return the key by which images of a source and a data set are matched, from an id, a file name or a path.

    The name without folders and ending; of COCO's names and of numbers the number alone, without leading zeros:
    `COCO_val2014_000000000042.jpg`, `000000000042` and `42` are one image.
    """
    stem = PurePath(name).name
    while stem.lower().endswith(_ENDINGS):
        stem = stem.rpartition(".")[0]
    number = _COCO.fullmatch(stem)
    return number[1] if number else stem


def by_image_key(
    places: Iterable[tuple[str, Place]], where: str, key: Callable[[str], str] = image_key
) -> dict[str, tuple[str, Place]]:
    """Return names with their places by the names' keys; of a name that is there twice the last place counts.

    Raises ExtractorError, which says `where`, for two names of one key: both images would get the features of one.
    """
    found: dict[str, tuple[str, Place]] = {}
    for name, place in places:
        other, _ = found.get(key(name), (name, place))
        if other != name:
            raise ExtractorError(
                f"{where}: {other} and {name} count as one image, which would get the features of either; folders, "
                "endings and leading zeros do not tell images apart: rename one of them"
            )
        found[key(name)] = (name, place)
    return found


def checked_regions(
    features: Array, boxes: Array | None = None, labels: Mapping[str, Array] | None = None
) -> RegionFeatures:
    """Check every array of regions and convert it to its stored type; ImageError names what is wrong.

    `boxes` are in pixels of the image, `labels` those of `LABELS` that are known.
    """
    if features.ndim != 2 or features.dtype.kind != "f" or features.size == 0:
        raise ImageError(f"features are {features.dtype} of shape {features.shape}, floats of shape (N, F) are needed")
    count = len(features)
    with np.errstate(over="ignore"):
        stored = np.array(features, dtype=np.float16, order="C")
    if not np.isfinite(stored).all():
        raise ImageError("features that are NaN, infinite or beyond the range of float16 (65504)")
    companions: dict[str, Array] = {}
    if boxes is not None:
        if boxes.shape != (count, 4) or boxes.dtype.kind not in "fiu" or not np.isfinite(boxes).all():
            raise ImageError(f"boxes are {boxes.dtype} of shape {boxes.shape}, finite numbers ({count}, 4) are needed")
        companions["boxes"] = np.array(boxes, dtype=np.float32, order="C")
    for name, values in (labels or {}).items():
        if values.shape != (count,):
            raise ImageError(f"{name} are of shape {values.shape}, ({count},) is needed")
        companions[name] = values.astype(LABELS[name])
    return RegionFeatures(stored, companions)
