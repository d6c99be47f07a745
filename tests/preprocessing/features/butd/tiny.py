"""A small detector and small images for the tests of the parts that need them."""

from __future__ import annotations

import numpy as np

from preprocessing.features.butd.detector import Detector, Size, random_detector
from preprocessing.features.butd.resize import Pixels

TINY = Size(width=2, blocks=(1, 2, 1), objects=5, attributes=3)


def tiny_detector(seed: int = 0, minimum: int = 3, maximum: int = 6) -> Detector:
    return random_detector(TINY, minimum, maximum, seed)


def noise(height: int, width: int, seed: int = 0, scale: float = 1.0) -> Pixels:
    """An image of that many pixels after resizing."""
    values = np.random.default_rng(seed).uniform(-120, 130, (3, height, width)).astype(np.float32)
    return Pixels(values, scale)
