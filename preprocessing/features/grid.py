"""Features from a network's last state: cells of a CNN, patches of a vision transformer, boxes of a pyramid.

Shapes: N vectors, P boxes, h x w cells, F feature width.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from preprocessing.features.extractor import ExtractorError, FileExtractor, Grid, RegionFeatures, as_features
from preprocessing.features.networks import Network, NetworkOptions, PixelsCHW, build_cnn, load_transformers

LEVELS = (1, 2, 3, 4)


class StateExtractor(FileExtractor):
    """Stores vectors (N, F) float16 of a network's last state; a subclass says which."""

    version = 1

    def __init__(self, network: Network) -> None:
        self._network = network

    @abstractmethod
    def vectors(self, state: Tensor) -> Tensor:
        """The set (N, F) of an image's state, (F, h, w) of a CNN, (N, F) of a transformer."""

    def grid(self, state: Tensor, pixels: PixelsCHW) -> Grid | None:  # noqa: ARG002
        """Return the places of the vectors of an image's state; None if they are not cells."""
        return None

    def prepare(self, _data: bytes, image: Image.Image, /) -> PixelsCHW:
        """One image as the model's normalised pixels, (3, H, W) float32."""
        return self._network.pixels(image)

    def __call__(self, items: Sequence[PixelsCHW]) -> list[RegionFeatures]:
        """Return the features (N, F) float16 of each image of a batch, with their grid."""
        states = self._network.states(items)
        features = as_features([self.vectors(state) for state in states], self._network.weights)
        grids = [self.grid(state, pixels) for state, pixels in zip(states, items, strict=True)]
        return [RegionFeatures(each, grid=grid) for each, grid in zip(features, grids, strict=True)]

    def identity(self) -> dict[str, Any]:
        """Digests of weights, configuration and preprocessing; not of the device, which only changes rounding."""
        return {"extractor": self.name, "version": self.version, **self._network.identity}


class GridExtractor(StateExtractor):
    """The cells of a CNN's last feature map, (h * w, F) float16 row by row, as in VSE-infinity's grid models.

    Images of a batch may differ in size. Arguments and errors are those of :func:`build_cnn`.
    """

    name = "grid"

    def __init__(self, **network: Any) -> None:
        super().__init__(build_cnn(**network))

    def vectors(self, state: Tensor) -> Tensor:
        """The cells of a feature map (F, h, w), in row-major order."""
        return state.flatten(1).T

    def grid(self, state: Tensor, pixels: PixelsCHW) -> Grid:  # noqa: ARG002
        """Height and width of the feature map."""
        return Grid(state.shape[1], state.shape[2])


class PatchExtractor(StateExtractor):
    """The patches of a vision transformer's `last_hidden_state`, (N, F) float16 row by row, and its class token.

    The image is brought to the model's size as its folder says (ViT-B/16 at 224 pixels: 197 x 768,
    VSE+2AD's input). Tokens that stand for no place, such as registers, are left out. Other arguments are the fields of
    :class:`NetworkOptions`; ExtractorError also if the network is not a vision transformer, or lacks a class token.
    """

    name = "patches"

    def __init__(self, class_token: bool = True, **network: Any) -> None:
        super().__init__(load_transformers(NetworkOptions(**network)))
        state, weights = self._network.example_state(), self._network.weights
        if state.ndim != 2:
            raise ExtractorError(f"{weights} is a CNN, which has cells and no patches; use the extractor 'grid'")
        rows, columns = patch_grid(len(state), *self._network.example_pixels().shape[1:])
        # What is over are class, distillation and register tokens, the class token first.
        self._others = len(state) - rows * columns
        self._is_square = rows == columns
        if class_token and not self._others:
            raise ExtractorError(f"{weights}: {len(state)} tokens, all of them patches; set class_token to false")
        self._class_token = class_token

    def vectors(self, state: Tensor) -> Tensor:
        """The patches among the tokens (N, F), after the class token if it is wanted."""
        patches = list(range(self._others, len(state)))
        return state[[0, *patches] if self._class_token else patches]

    def grid(self, state: Tensor, pixels: PixelsCHW) -> Grid:
        """Rows and columns of the patches, behind the class token if it is wanted."""
        rows, columns = patch_grid(len(state) - self._others, *pixels.shape[1:])
        return Grid(rows, columns, int(self._class_token))

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, all that is done to the image before, and which tokens are kept."""
        # Some patches of images that are not squares were once taken for class tokens.
        others = {} if self._is_square else {"others": self._others}
        return {**super().identity(), "class_token": self._class_token, **others}


def patch_grid(tokens: int, height: int, width: int) -> tuple[int, int]:
    """Return rows and columns of the smallest square patches of an image that are no more than its tokens."""
    sides = range(1, min(height, width) + 1)
    return next((height // side, width // side) for side in sides if (height // side) * (width // side) <= tokens)


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
    return (np.minimum(ends[:, None] * cells, left + 1) - np.maximum(starts[:, None] * cells, left)).clip(min=0.0)
