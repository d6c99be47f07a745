"""Patch features: the tokens of the last layer of any vision transformer of transformers (ViT, DINOv2, CLIP, ...)."""

import math
from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from preprocessing.features.extractor import ExtractorError, FeaturesNF, ImageExtractor
from preprocessing.features.networks import PixelsCHW, as_features, load_transformers

_VERSION = 1


class PatchExtractor(ImageExtractor):
    """The patches of a vision transformer's `last_hidden_state` as a set of vectors, with its class token or without.

    The image is brought to the model's size as its preprocessor_config.json says. Tokens are (N, F), patches in
    row-major order, the class token before them (ViT-B/16 at 224 pixels: 197 x 768, VSE+2AD's input). Other tokens that
    stand for no place, such as registers, are left out. Computed in float32; the result is float16.

    Args:
        weights: a folder with config.json, preprocessor_config.json and *.safetensors, or a hub id; of a model of
            images and texts (CLIP, SigLIP) the vision tower is taken.
        class_token: whether the set begins with the class token.
        device: where the model runs, as torch names it.
        seed: initialises the network from this number; `weights` is then a folder with the two JSON files only.

    Raises:
        ExtractorError: the weights cannot be found, loaded or do not fit; the network is no vision transformer or has
            no class token where one is asked for; or there is no such device.
    """

    name = "patches"

    def __init__(self, weights: str, class_token: bool = True, device: str = "cpu", seed: int | None = None) -> None:
        self._network = load_transformers(weights, None, device, seed)
        state = self._network.example_state()
        if state.ndim != 2:
            raise ExtractorError(f"{weights} is a CNN, which has cells and no patches; use the extractor 'grid'")
        # Patches fill a square; what is over are class, distillation and register tokens, the class token first.
        self._others = len(state) - math.isqrt(len(state)) ** 2
        if class_token and not self._others:
            raise ExtractorError(f"{weights}: {len(state)} tokens, all of them patches; set class_token to false")
        self._class_token = class_token

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
        return as_features(
            [self._chosen(tokens_NF) for tokens_NF in self._network.states(items)], self._network.weights
        )

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, all that is done to the image before, and which tokens are kept."""
        return {
            "extractor": "patches",
            "version": _VERSION,
            "class_token": self._class_token,
            **self._network.identity,
        }

    def _chosen(self, tokens_NF: Tensor) -> Tensor:
        patches = list(range(self._others, len(tokens_NF)))
        return tokens_NF[[0, *patches] if self._class_token else patches]
