"""Sizes against what the genuine features tell, pixels against one-by-one interpolation."""

from __future__ import annotations

import base64
import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing.features.butd.resize import prepare, target_size
from preprocessing.features.images import ImageError

MEANS = [102.9801, 115.9465, 122.7717]


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (640, 480, (600, 800)),
        (500, 333, (600, 901)),
        (427, 640, (899, 600)),
        (640, 360, (562, 1000)),  # 562.5: to even
        (6000, 3599, (600, 1000)),  # 1000.28 is compared after rounding
        (1600, 1200, (600, 800)),
        (100, 100, (600, 600)),
        (5000, 500, (100, 1000)),
    ],
)
def test_the_short_side_is_600_and_the_long_one_at_most_1000(
    width: int, height: int, expected: tuple[int, int]
) -> None:
    assert target_size(width, height)[1] == expected


def test_boxes_of_the_released_features_end_where_the_images_do(vse_data: Path) -> None:
    """The largest box of each of the ten photographs touches the border: the last pixel over the scale."""
    csv.field_size_limit(10**8)
    with (vse_data / "butd_reference" / "train2014_obj36.tsv").open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert len(rows) == 10
    for row in rows:
        boxes = np.frombuffer(base64.b64decode(row[8]), np.float32).reshape(-1, 4)
        scale, (height, width) = target_size(int(row[2]), int(row[1]))
        np.testing.assert_allclose(boxes.max(0)[2:], [(width - 1) / scale, (height - 1) / scale], atol=1e-3)


def random_image(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(30, 20), (1200, 700)])
def test_the_original_interpolates_between_four_pixels(size: tuple[int, int]) -> None:
    """Oracle: some pixels, each from its four neighbours; larger images are not smoothed."""
    image = random_image(*size)
    found = prepare(image)
    scale, (height, width) = target_size(*size)
    assert (found.values.shape, found.values.dtype) == ((3, height, width), np.float32)
    assert found.scale == scale
    source = np.asarray(image, dtype=np.float64)[:, :, ::-1] - MEANS
    corners = [(0, 0), (height - 1, width - 1), (0, width - 1)]
    for y, x in [*corners, *np.random.default_rng(1).integers(0, (height, width), (50, 2)).tolist()]:
        down = min(max((y + 0.5) / scale - 0.5, 0), size[1] - 1)
        across = min(max((x + 0.5) / scale - 0.5, 0), size[0] - 1)
        top, left = int(down), int(across)
        bottom, right = min(top + 1, size[1] - 1), min(left + 1, size[0] - 1)
        upper = source[top, left] * (1 - (across - left)) + source[top, right] * (across - left)
        lower = source[bottom, left] * (1 - (across - left)) + source[bottom, right] * (across - left)
        expected = upper * (1 - (down - top)) + lower * (down - top)
        np.testing.assert_allclose(found.values[:, y, x], expected, atol=2e-3)


def test_an_image_may_be_too_narrow() -> None:
    assert prepare(Image.new("RGB", (1000, 16))).values.shape == (3, 16, 1000)
    with pytest.raises(ImageError, match=r"2000 x 20 pixels is too narrow: once resized, less than 16 wide"):
        prepare(Image.new("RGB", (2000, 20)))
