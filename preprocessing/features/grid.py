"""Grid features: the cells of the last feature map of any CNN of transformers or torchvision."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from preprocessing.features.extractor import ExtractorError, FeaturesNF, ImageExtractor
from preprocessing.features.networks import ImageSize, PixelsCHW, as_features, build_network

_VERSION = 1


class GridExtractor(ImageExtractor):
    """The cells of a CNN's last feature map as a set of vectors.

    The state (B, F, h, w) becomes (h * w, F) in row-major order of the cells, as in VSE-infinity's grid models. Images
    of a batch may differ in size. Computed in float32; the result is float16.

    Args:
        weights: of transformers a folder or hub id; of torchvision a file.
        network: a CNN of torchvision by name, "resnext101_32x8d"; or "resnet101_caffe", bottom-up attention's. None
            means transformers.
        image_size: side of the square that the whole image becomes, or "short_600": the short side becomes 600 pixels
            and the long one at most 1000. None leaves it to the preprocessor_config.json of the weights.
        device: where the model runs, as torch names it.
        seed: initialises the network from this number instead of trained weights (see :func:`build_network`).

    Raises:
        ExtractorError: the weights cannot be found, loaded or do not fit; the network has no feature map; or there is
            no such device.
    """

    name = "grid"

    def __init__(
        self,
        weights: str | None = None,
        network: str | None = None,
        image_size: ImageSize | None = None,
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
        """The features (N, F) float16 of each image of a batch.

        Raises:
            ExtractorError: a feature is not finite in float16.
        """
        maps = self._network.states(items)
        return as_features([map_Fhw.flatten(1).T for map_Fhw in maps], self._network.weights)

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, and all that is done to the image before.

        The device is left out: it changes features by float rounding only.
        """
        return {"extractor": "grid", "version": _VERSION, **self._network.identity}


def check_feature_map(shape: Sequence[int], weights: str) -> None:
    """Raises ExtractorError unless the state of an image is a feature map (F, h, w)."""
    if len(shape) == 2:
        raise ExtractorError(f"{weights} is a transformer, which has no grid of cells; use the extractor 'patches'")
    if len(shape) != 3:
        raise ExtractorError(f"{weights}: a state of shape {tuple(shape)}, where (F, h, w) is needed; name a CNN")
