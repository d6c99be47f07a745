"""Published regions of an image, checked and in the types in which they are stored."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.features.extractor import RegionFeatures
from preprocessing.features.images import ImageError

Array = npt.NDArray[Any]
# What is known of each region besides its vector and its box: numbers of classes int32, confidences float32.
LABELS = {"objects": np.int32, "object_scores": np.float32, "attributes": np.int32, "attribute_scores": np.float32}


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
