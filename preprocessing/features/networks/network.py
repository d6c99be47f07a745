"""A network that gives its last state for images, whatever library it comes from, and states as stored features.

Shapes: B images, C channels, H x W pixels, h x w cells, N set elements, F feature width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.networks.pixels import ImageSize, PixelsCHW
from preprocessing.features.weights import checked_device
from preprocessing.reading import damage_as


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """A network to load, and how it runs.

    Attributes:
        weights: of transformers a folder or hub id, see :func:`load_transformers`; of torchvision a file, see
            :func:`load_torchvision`.
        network: a CNN of torchvision by name, "resnext101_32x8d", or "resnet101_caffe", bottom-up attention's; None
            means transformers.
        image_size: side of the square that an image becomes, uncropped, or "short_600": the short side becomes 600
            pixels and the long one at most 1000. None leaves it to the settings that come with the weights.
        device: that it runs on, as torch names it; ExtractorError if this machine has none such.
        seed: initialises the network from this number instead of loading trained weights.
        dtype: what it computes in: "float32", "bfloat16" or "float16".
    """

    weights: str | None = None
    network: str | None = None
    image_size: ImageSize | None = None
    device: str = "cpu"
    seed: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        checked_device(self.device)

    def ready(
        self,
        name: str,
        model: nn.Module,
        forward: Callable[[Tensor], Tensor],
        pixels: Callable[[Image.Image], PixelsCHW],
        identity: Mapping[str, Any],
    ) -> "Network":
        """Bring a model that is in memory to the device, and return it as a network."""
        device, dtype = torch.device(self.device), getattr(torch, self.dtype)
        model.eval().requires_grad_(False).to(device, dtype).to(memory_format=torch.channels_last)
        size = {} if self.image_size is None else {"image_size": self.image_size}
        numbers = {} if self.dtype == "float32" else {"dtype": self.dtype}
        return Network(name, device, pixels, forward, {**identity, "seed": self.seed, **size, **numbers}, dtype)


@dataclass(frozen=True)
class Network:
    """Weights on a device, with the preprocessing that belongs to them.

    Attributes:
        weights: what they were loaded from, for messages.
        pixels: one image as normalised pixels, (3, H, W) float32; raises ImageError.
        forward: pixels (B, 3, H, W) on the device to the last state, (B, F, h, w) of a CNN, (B, N, F) of a transformer.
        identity: everything that changes the states but the device, as JSON.
        dtype: what it computes in; its states are float32.
    """

    weights: str
    device: torch.device
    pixels: Callable[[Image.Image], PixelsCHW]
    forward: Callable[[Tensor], Tensor]
    identity: Mapping[str, Any]
    dtype: torch.dtype = torch.float32

    @torch.inference_mode()
    def states(self, items: Sequence[PixelsCHW]) -> list[Tensor]:
        """The last state of each item, (F, h, w) or (N, F); those of one size go through the network together."""
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for index, item in enumerate(items):
            by_shape.setdefault(item.shape, []).append(index)
        states: dict[int, Tensor] = {}
        for indices in by_shape.values():
            # Each by itself: a GPU takes them faster than the host puts them side by side.
            pixels_BCHW = torch.stack(
                [torch.from_numpy(items[index]).to(self.device, non_blocking=True) for index in indices]
            )
            pixels_BCHW = pixels_BCHW.to(self.dtype, memory_format=torch.channels_last)
            state = self.forward(pixels_BCHW).float()
            states.update(zip(indices, state, strict=True))
        return [states[index] for index in range(len(items))]

    def example_pixels(self) -> PixelsCHW:
        """The pixels of an image whose parts all differ."""
        try:
            return self.pixels(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)))
        except ImageError as error:
            raise ExtractorError(f"{self.weights}: the preprocessing fails on an image of noise: {error}") from error

    def example_state(self) -> Tensor:
        """The state of `example_pixels`; ExtractorError for a model of another kind, or one whose state is random."""
        pixels = self.example_pixels()
        with damage_as(
            ExtractorError, f"{self.weights}: no last hidden state for pixels alone", "name a vision backbone"
        ):
            state, again = (self.states([pixels])[0] for _ in range(2))
        bound = 1e-3 * float(state.abs().max())  # rounding on a GPU
        if state.shape != again.shape or not torch.allclose(state, again, rtol=1e-3, atol=bound):
            raise ExtractorError(f"{self.weights}: two passes over one image give different features; name another")
        return state
