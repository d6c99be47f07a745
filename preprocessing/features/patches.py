"""Patch features: the tokens of the last layer of any vision transformer of transformers (ViT, DINOv2, CLIP, ...)."""

from typing import Any

from torch import Tensor

from preprocessing.features.extractor import ExtractorError, Grid
from preprocessing.features.grid import StateExtractor
from preprocessing.features.networks import NetworkOptions, PixelsCHW, load_transformers


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
