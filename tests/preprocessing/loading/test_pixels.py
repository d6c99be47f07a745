"""Views of an image against bilinear interpolation written out pixel by pixel, and against the crops' definition."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from preprocessing.features.images import ImageError
from preprocessing.loading.pixels import decode_pixels, full_view, random_view
from preprocessing.randomness import sample_rng


def picture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)).permute(
        2, 0, 1
    )


def bilinear(source: torch.Tensor, size: int) -> np.ndarray:
    """Between the centres of the four nearest pixels, edges repeated."""
    pixels = source.numpy().astype(np.float64)
    _, height, width = pixels.shape
    out = np.empty((3, size, size))
    for y in range(size):
        for x in range(size):
            v = min(max((y + 0.5) * height / size - 0.5, 0), height - 1)
            u = min(max((x + 0.5) * width / size - 0.5, 0), width - 1)
            top, left = int(v), int(u)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            above = (1 - u + left) * pixels[:, top, left] + (u - left) * pixels[:, top, right]
            below = (1 - u + left) * pixels[:, bottom, left] + (u - left) * pixels[:, bottom, right]
            out[:, y, x] = (1 - v + top) * above + (v - top) * below
    return out


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 24))
def test_full_view_pixel_by_pixel(height: int, width: int, size: int) -> None:
    source = picture(height, width)
    view = full_view(source, size)
    assert view.dtype == torch.uint8
    assert view.shape == (3, size, size)
    # Whole numbers, and the weights' own rounding.
    assert np.abs(view.numpy() - bilinear(source, size)).max() <= 1.01


def test_random_view_is_a_crop_and_perhaps_mirrored() -> None:
    height, width, size = 40, 50, 16
    source = picture(height, width)
    ratios, places, flips = [], [], []
    for sample in range(300):
        ratio, top, left, flip = sample_rng(7, 0, sample, 2).random(4)
        h, w = int(height * (0.6 + 0.4 * ratio)), int(width * (0.6 + 0.4 * ratio))
        y, x = int(top * (height - h + 1)), int(left * (width - w + 1))
        expected = full_view(source[:, y : y + h, x : x + w], size)
        expected = expected.flip(2) if flip < 0.5 else expected
        assert torch.equal(random_view(source, size, sample_rng(7, 0, sample, 2)), expected)
        ratios.append(h / height)
        places.append((y / max(1, height - h), x / max(1, width - w)))
        flips.append(flip < 0.5)
    assert 0.6 <= min(ratios) < 0.65
    assert 0.95 < max(ratios) <= 1
    assert np.min(places) == 0
    assert np.max(places) == 1
    assert 0.4 < np.mean(flips) < 0.6


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_the_smallest_images_have_views(height: int, width: int, sample: int) -> None:
    assert random_view(picture(height, width), 8, sample_rng(0, 0, sample, 2)).shape == (3, 8, 8)


def test_a_narrow_image_is_cut_before_it_is_scaled() -> None:
    """One row of 60,000 pixels took 21 GB."""
    row = picture(1, 60_000)
    assert torch.equal(full_view(row, 8, "crop"), full_view(row[:, :, 30_000 - 8 : 30_000 + 8], 8, "crop"))


def test_decoding() -> None:
    image = Image.fromarray(picture(5, 7).permute(1, 2, 0).numpy())
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    assert torch.equal(decode_pixels(buffer.getvalue()), picture(5, 7))
    with pytest.raises(ImageError):
        decode_pixels(b"no image")
