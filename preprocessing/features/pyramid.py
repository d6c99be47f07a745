"""Regions without a detector: the boxes of a spatial pyramid, pooled from a CNN's feature map.

Shapes: P boxes, h x w cells, F feature width.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from preprocessing.features.extractor import FeaturesNF, ImageExtractor
from preprocessing.features.grid import check_feature_map
from preprocessing.features.networks import ImageSize, PixelsCHW, as_features, build_network

_VERSION = 1
LEVELS = (1, 2, 3, 4)


def pyramid_boxes() -> npt.NDArray[np.float64]:
    """The 30 boxes (x1, y1, x2, y2) in fractions of the image: 1x1, then 2x2, 3x3, 4x4, each level row by row."""
    return np.array(
        [
            (column / level, row / level, (column + 1) / level, (row + 1) / level)
            for level in LEVELS
            for row in range(level)
            for column in range(level)
        ]
    )


class PyramidExtractor(ImageExtractor):
    """Averages of a feature map over the boxes of a 1x1, 2x2, 3x3 and 4x4 pyramid: a set of 30 region vectors.

    A box's vector is the average of the map over the box, a cell on its border counting by the part that lies inside:
    RoI average pooling without rounding to cells (spatial pyramids: Lazebnik et al., CVPR 2006). The boxes cover the
    whole image, for the whole image is what the network sees. Computed in float32; the result is float16.

    Args:
        weights: of transformers a folder or hub id; of torchvision a file.
        network: a CNN of torchvision by name; None means transformers.
        image_size: see :class:`GridExtractor`.
        device: where the model runs, as torch names it.
        seed: initialises the network from this number instead of trained weights.

    Raises:
        ExtractorError: as :class:`GridExtractor`.
    """

    name = "pyramid"

    def __init__(
        self,
        weights: str | None = None,
        network: str | None = None,
        image_size: ImageSize = 224,
        device: str = "cpu",
        seed: int | None = None,
    ) -> None:
        self._network = build_network(weights, network, image_size, device, seed)
        check_feature_map(self._network.example_state().shape, self._network.weights)

    def pixels(self, image: Image.Image) -> PixelsCHW:
        """One image as the model's normalised pixels, (3, H, W) float32.

        Raises:
            ImageError: it cannot be brought to the model's size.
        """
        return self._network.pixels(image)

    def __call__(self, items: Sequence[PixelsCHW]) -> list[FeaturesNF]:
        """The features (30, F) float16 of each image, in the order of :func:`pyramid_boxes`.

        Raises:
            ExtractorError: a feature is not finite in float16.
        """
        return as_features([_pooled(map_Fhw) for map_Fhw in self._network.states(items)], self._network.weights)

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, and all that is done to the image before."""
        return {"extractor": "pyramid", "version": _VERSION, **self._network.identity}


def _pooled(map_Fhw: Tensor) -> Tensor:
    shares_Phw = _shares(*map_Fhw.shape[1:]).to(map_Fhw.device)
    return shares_Phw.flatten(1) @ map_Fhw.flatten(1).T


@lru_cache(maxsize=64)
def _shares(height: int, width: int) -> Tensor:
    """The share of each cell in each box, (P, h, w) float32; the shares of a box sum to 1."""
    x1, y1, x2, y2 = pyramid_boxes().T
    rows_Ph, columns_Pw = _overlaps(y1, y2, height), _overlaps(x1, x2, width)
    shares_Phw = rows_Ph[:, :, None] * columns_Pw[:, None, :]
    return torch.from_numpy((shares_Phw / shares_Phw.sum((1, 2), keepdims=True)).astype(np.float32))


def _overlaps(starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64], cells: int) -> npt.NDArray[np.float64]:
    """Length of the part of each of `cells` equal cells that lies in each interval, in cells: (P, cells)."""
    left = np.arange(cells)
    lengths = np.minimum(ends[:, None] * cells, left + 1) - np.maximum(starts[:, None] * cells, left)
    positive: npt.NDArray[np.float64] = np.maximum(lengths, 0.0)
    return positive
