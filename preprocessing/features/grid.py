"""Grid features: the cells of the last feature map of any CNN of transformers or torchvision."""

from collections.abc import Sequence

from torch import Tensor

from preprocessing.features.extractor import ExtractorError, Grid
from preprocessing.features.networks import ImageSize, PixelsCHW, build_network
from preprocessing.features.state_extractor import StateExtractor


class GridExtractor(StateExtractor):
    """The cells of a CNN's last feature map as a set of vectors.

    The state (B, F, h, w) becomes (h * w, F) in row-major order of the cells, as in VSE-infinity's grid models. Images
    of a batch may differ in size. The result is float16. Arguments and errors are those of
    :func:`build_network`; besides, ExtractorError is raised where the network has no feature map.
    """

    name = "grid"

    def __init__(
        self,
        weights: str | None = None,
        network: str | None = None,
        image_size: ImageSize | None = None,
        device: str = "cpu",
        seed: int | None = None,
        dtype: str = "float32",
    ) -> None:
        super().__init__(build_network(weights, network, image_size, device, seed, dtype))
        check_feature_map(self._network.example_state().shape, self._network.weights)

    def vectors(self, state: Tensor) -> Tensor:
        """The cells of a feature map (F, h, w), in row-major order."""
        return state.flatten(1).T

    def grid(self, state: Tensor, pixels: PixelsCHW) -> Grid:  # noqa: ARG002
        """Height and width of the feature map."""
        return Grid(state.shape[1], state.shape[2])


def check_feature_map(shape: Sequence[int], weights: str) -> None:
    """Raises ExtractorError unless the state of an image is a feature map (F, h, w)."""
    if len(shape) == 2:
        raise ExtractorError(f"{weights} is a transformer, which has no grid of cells; use the extractor 'patches'")
    if len(shape) != 3:
        raise ExtractorError(f"{weights}: a state of shape {tuple(shape)}, where (F, h, w) is needed; name a CNN")
