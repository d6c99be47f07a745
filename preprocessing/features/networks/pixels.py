"""From an image of any size to the normalised pixels that a network was trained with.

Shapes: C channels, H x W pixels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from preprocessing.features.butd import resize
from preprocessing.features.images import ImageError

PixelsCHW = npt.NDArray[np.float32]

# A side in pixels: the complete image becomes a square, its aspect ratio ignored (VSE-infinity's grids, 512).
# "short_600": the aspect ratio stays, the short side becomes 600 and the long one at most 1000 (bottom-up attention).
SHORT_600: Literal["short_600"] = "short_600"
ImageSize = int | Literal["short_600"]

# The stride of the last feature map of nearly all CNNs: fewer pixels than that give less than one cell.
SMALLEST_SIDE = 32


@dataclass(frozen=True)
class Normalization:
    """Normalisation of pixels from 0 to 255: blue first if `bgr`, minus the mean, divided by the deviation."""

    mean: Sequence[float]
    std: Sequence[float]
    bgr: bool = False

    def __call__(self, pixels_CHW: PixelsCHW) -> PixelsCHW:
        """Normalise pixels, red first."""
        ordered = pixels_CHW[::-1] if self.bgr else pixels_CHW
        mean, std = (np.array(values, dtype=np.float32).reshape(3, 1, 1) for values in (self.mean, self.std))
        return np.ascontiguousarray((ordered - mean) / std)


IMAGENET = Normalization([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
# Networks trained in Caffe: means in the order blue, green, red, no deviation (bottom-up attention).
CAFFE = Normalization(list(resize.BGR_MEANS), [1.0, 1.0, 1.0], bgr=True)


def pixels_at(normalization: Normalization, image_size: ImageSize) -> Callable[[Image.Image], PixelsCHW]:
    """Return a function from an image to its normalised pixels at a size."""
    return lambda image: normalization(resized(image, image_size))


def target_size(width: int, height: int, image_size: ImageSize) -> tuple[int, int]:
    """Return the height and width that an image is brought to; ImageError if it would be too narrow."""
    if image_size != SHORT_600:
        return int(image_size), int(image_size)
    _, size = resize.target_size(width, height)
    if min(size) < SMALLEST_SIDE:
        raise ImageError(f"{width} x {height} pixels is too narrow: less than {SMALLEST_SIDE} pixels wide once resized")
    return size


def resized(image: Image.Image, image_size: ImageSize) -> PixelsCHW:
    """Resize the complete image, (3, H, W) float32 from 0 to 255, red first.

    Bilinear between pixel centres without smoothing before, as by OpenCV, from which the published networks saw images.
    """
    size = target_size(image.width, image.height, image_size)
    pixels_CHW = torch.from_numpy(np.array(image, dtype=np.float32)).permute(2, 0, 1)
    scaled = torch.nn.functional.interpolate(pixels_CHW[None], size, mode="bilinear", align_corners=False)
    return np.ascontiguousarray(scaled[0].numpy())
