"""From a photograph to the network's pixels: blue, green, red minus their means, the short side 600 pixels.

H x W pixels of the photograph, h x w of the network.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from preprocessing.features.butd.proposals import STRIDE
from preprocessing.features.images import ImageError

SHORT_SIDE = 600
LONG_SIDE = 1000
BGR_MEANS = (102.9801, 115.9465, 122.7717)


@dataclass(frozen=True, slots=True)
class Pixels:
    """A photograph as the network's (3, h, w) float32: BGR minus means, sides times `scale`."""

    values: npt.NDArray[np.float32]
    scale: float


def prepare(image: Image.Image) -> Pixels:
    """The pixels of an RGB image; ImageError if it is too narrow.

    The means are subtracted, then values are interpolated linearly between the four nearest pixels, without smoothing,
    with a scale that is the same for both sides (OpenCV's resize with fx and fy).
    """
    scale, (height, width) = target_size(image.width, image.height)
    if min(height, width) < STRIDE:
        raise ImageError(f"{image.width} x {image.height} pixels is too narrow: once resized, less than {STRIDE} wide")
    bgr = np.asarray(image, dtype=np.float32)[:, :, ::-1] - np.array(BGR_MEANS, np.float32)
    low, high, weight = _neighbours(image.width, width, scale)
    bgr = bgr[:, low] * (1 - weight[:, None]) + bgr[:, high] * weight[:, None]
    low, high, weight = _neighbours(image.height, height, scale)
    bgr = bgr[low] * (1 - weight[:, None, None]) + bgr[high] * weight[:, None, None]
    return Pixels(np.ascontiguousarray(bgr.transpose(2, 0, 1)), scale)


def target_size(width: int, height: int) -> tuple[float, tuple[int, int]]:
    """Scale and size (h, w) of the network's image: short side 600, but the long side at most 1000."""
    short, long = sorted((width, height))
    scale = SHORT_SIDE / short
    # The original rounds before it compares, and halves to even as numpy and OpenCV do.
    if round(scale * long) > LONG_SIDE:
        scale = LONG_SIDE / long
    return scale, (round(scale * height), round(scale * width))


def _neighbours(
    length: int, target: int, scale: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """For each pixel of a resized side the two pixels it lies between, and the weight of the second."""
    place = np.clip((np.arange(target) + 0.5) / scale - 0.5, 0, length - 1)
    low = place.astype(np.int64)
    return low, np.minimum(low + 1, length - 1), (place - low).astype(np.float32)
