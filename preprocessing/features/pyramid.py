"""Regions without a detector: the boxes of a spatial pyramid, pooled from a CNN's feature map.

Shapes: P boxes, h x w cells, F feature width.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.features.grid import StateExtractor
from preprocessing.features.networks import build_cnn

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


class PyramidExtractor(StateExtractor):
    """Averages of a feature map over the boxes of a 1x1, 2x2, 3x3 and 4x4 pyramid: 30 region vectors float16.

    A box's vector is the average of the map over the box, a cell on its border counting by the part that lies inside:
    RoI average pooling without rounding to cells (spatial pyramids: Lazebnik et al., CVPR 2006). Arguments and errors
    are those of :func:`build_cnn`; images have 224 pixels a side if nothing else is said.
    """

    name = "pyramid"

    def __init__(self, **network: Any) -> None:
        network.setdefault("image_size", 224)
        super().__init__(build_cnn(**network))

    def vectors(self, state: Tensor) -> Tensor:
        """The averages (30, F) of a feature map (F, h, w), in the order of :func:`pyramid_boxes`."""
        shares_Phw = _shares(*state.shape[1:]).to(state.device)
        return shares_Phw.flatten(1) @ state.flatten(1).T


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
