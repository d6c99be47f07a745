"""Features from a network's last state: the base of their extractors, and the cells of a CNN's last feature map."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from preprocessing.features.extractor import FileExtractor, Grid, RegionFeatures, as_features
from preprocessing.features.networks import Network, PixelsCHW, build_cnn


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
