"""Common base of the extractors of vectors from a network's last state."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from preprocessing.features.extractor import FeaturesNF, ImageExtractor
from preprocessing.features.networks import Network, PixelsCHW, as_features


class StateExtractor(ImageExtractor):
    """Stores vectors (N, F) float16 of a network's last state, computed in float32; a subclass says which."""

    version = 1

    def __init__(self, network: Network) -> None:
        self._network = network

    @abstractmethod
    def vectors(self, state: Tensor) -> Tensor:
        """The set (N, F) of an image's state, (F, h, w) of a CNN, (N, F) of a transformer."""

    def pixels(self, image: Image.Image) -> PixelsCHW:
        """One image as the model's normalised pixels, (3, H, W) float32."""
        return self._network.pixels(image)

    def __call__(self, items: Sequence[PixelsCHW]) -> list[FeaturesNF]:
        """Return the features (N, F) float16 of each image of a batch."""
        return as_features([self.vectors(state) for state in self._network.states(items)], self._network.weights)

    def identity(self) -> dict[str, Any]:
        """Digests of weights, configuration and preprocessing; not of the device, which only changes rounding."""
        return {"extractor": self.name, "version": self.version, **self._network.identity}
