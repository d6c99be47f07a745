"""From an image file to the square of pixels that a network takes: a full view or a random one.

Shapes: S side of the square; h, w of the image.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from preprocessing.features.images import decode_image

# Least share of an image's sides that a training crop keeps (VSE-infinity's code).
_SMALLEST_CROP = 0.6
# Long side of an image in short ones, beyond which it is cut before it is scaled: one row of 5,000 pixels, scaled to a
# height of 224, would take gigabytes.
_LONGEST = 16

# "bilinear", "bicubic", "crop", or open_clip's "shortest", "longest" or "squash" with "-bicubic" or "-bilinear".
View = str


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """The pixels that an image encoder takes: height and width S, and the N cells of the grid it makes of them.

    The view is how a full image becomes S x S pixels; see :func:`full_view`.
    """

    size: int
    cells: int
    view: View = "bilinear"


def decode_pixels(data: bytes) -> torch.Tensor:
    """Decode an image as uint8 of shape (3, h, w), red first; raise ImageError."""
    # A copy, since Pillow's memory is read-only; channels stay innermost, which the resizing is fastest with.
    return torch.from_numpy(np.array(decode_image(data))).permute(2, 0, 1)


def full_view(pixels_3hw: torch.Tensor, size: int, view: View = "bilinear") -> torch.Tensor:
    """Return the full image as (3, S, S), its aspect ratio ignored, as in evaluation (VSE-infinity's code).

    Bilinear between pixel centres without smoothing before, as in OpenCV, which the released models were trained with;
    or bicubic with smoothing, as SigLIP has it; or as CLIP has it: so that the short side is S, of which the centre.
    Views with a dash are open_clip's, by Pillow: the short side is S, or the long one, in black; or both ("squash").
    """
    short = min(pixels_3hw.shape[1:])
    if view.startswith(("crop", "shortest")):
        top, left = (max(0, side - _LONGEST * short) // 2 for side in pixels_3hw.shape[1:])
        pixels_3hw = pixels_3hw[:, top : pixels_3hw.shape[1] - top, left : pixels_3hw.shape[2] - left]
    if "-" in view:
        return _pillow_view(pixels_3hw, size, *view.split("-"))
    height, width = pixels_3hw.shape[1:]
    target = (size * height // short, size * width // short) if view == "crop" else (size, size)
    smoothed = view != "bilinear"
    mode = "bicubic" if smoothed else "bilinear"
    resized = torch.nn.functional.interpolate(
        pixels_3hw.unsqueeze(0), target, mode=mode, align_corners=False, antialias=smoothed
    )
    top, left = ((side - size) // 2 for side in target)
    return resized[0, :, top : top + size, left : left + size]


def _pillow_view(pixels_3hw: torch.Tensor, size: int, mode: str, interpolation: str) -> torch.Tensor:
    """Return the view that `open_clip.image_transform` makes of an RGB image, pixel by pixel."""
    height, width = pixels_3hw.shape[1:]
    if mode == "shortest":
        target = [size * side // min(height, width) for side in (width, height)]
    else:
        ratio = max(height / size, width / size)
        target = [round(side / ratio) if mode == "longest" else size for side in (width, height)]
    image = Image.fromarray(pixels_3hw.permute(1, 2, 0).numpy())
    image = image.resize((max(1, target[0]), max(1, target[1])), Image.Resampling[interpolation.upper()])
    # Half pixels are rounded as they are there.
    left, top = (round((side - size) / 2) if side >= size else -((size - side) // 2) for side in image.size)
    square = image.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def random_view(pixels_3hw: torch.Tensor, size: int, rng: np.random.Generator, view: View = "bilinear") -> torch.Tensor:
    """Return a random crop (3, S, S) of sides times U(0.6, 1), half of the time mirrored (VSE-infinity's code)."""
    ratio, top, left, flip = rng.random(4)
    ratio = _SMALLEST_CROP + (1 - _SMALLEST_CROP) * ratio
    height, width = pixels_3hw.shape[1:]
    h, w = max(1, int(height * ratio)), max(1, int(width * ratio))
    y, x = int(top * (height - h + 1)), int(left * (width - w + 1))
    crop = full_view(pixels_3hw[:, y : y + h, x : x + w], size, "bilinear" if view == "bilinear" else "bicubic")
    return crop.flip(2) if flip < 0.5 else crop
