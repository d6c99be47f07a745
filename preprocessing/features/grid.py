"""Grid features: the cells of the last feature map of any CNN of transformers or torchvision."""

from typing import Any

from torch import Tensor

from preprocessing.features.extractor import Grid
from preprocessing.features.networks import PixelsCHW, build_cnn
from preprocessing.features.state_extractor import StateExtractor


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
