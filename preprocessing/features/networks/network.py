"""A network that gives its last state for images, whatever library it comes from, and states as stored features.

Shapes: B images, C channels, H x W pixels, h x w cells, N set elements, F feature width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from preprocessing.features.butd import resize
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.weights import checked_device
from preprocessing.reading import damage_as

PixelsCHW = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Normalization:
    """Normalisation of pixels from 0 to 255: blue first if `bgr`, minus the mean, divided by the deviation."""

    mean: Sequence[float]
    std: Sequence[float]
    bgr: bool = False

    def pixels(self, image: Image.Image, image_size: int) -> PixelsCHW:
        """Return the normalised pixels of an image as a square, its aspect ratio ignored (VSE-infinity's grids)."""
        pixels_CHW = resized(image, image_size)
        ordered = pixels_CHW[::-1] if self.bgr else pixels_CHW
        mean, std = (np.array(values, dtype=np.float32).reshape(3, 1, 1) for values in (self.mean, self.std))
        return np.ascontiguousarray((ordered - mean) / std)


IMAGENET = Normalization([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
# Networks trained in Caffe: means in the order blue, green, red, no deviation (bottom-up attention).
CAFFE = Normalization(list(resize.BGR_MEANS), [1.0, 1.0, 1.0], bgr=True)


def resized(image: Image.Image, side: int) -> PixelsCHW:
    """Resize the complete image to a square, (3, side, side) float32 from 0 to 255, red first.

    Bilinear between pixel centres without smoothing before, as by OpenCV, from which the published networks saw images.
    """
    pixels_CHW = torch.from_numpy(np.array(image, dtype=np.float32)).permute(2, 0, 1)
    scaled = torch.nn.functional.interpolate(pixels_CHW[None], (side, side), mode="bilinear", align_corners=False)
    return np.ascontiguousarray(scaled[0].numpy())


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """A network to load, and how it runs.

    Attributes:
        weights: of transformers a folder or hub id, see :func:`load_transformers`; of torchvision a file, see
            :func:`load_torchvision`.
        network: a CNN of torchvision by name, "resnext101_32x8d", or "resnet101_caffe", bottom-up attention's; None
            means transformers.
        image_size: side of the square that an image becomes, uncropped; None leaves it to the settings that come with
            the weights.
        device: that it runs on, as torch names it; ExtractorError if this machine has none such.
        seed: initialises the network from this number instead of loading trained weights.
        dtype: what it computes in: "float32", "bfloat16" or "float16".
    """

    weights: str | None = None
    network: str | None = None
    image_size: int | None = None
    device: str = "cpu"
    seed: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        checked_device(self.device)


class Network:
    """A model on a device, with the preprocessing that belongs to it; its states are float32 whatever it computes in.

    Args:
        options: how it runs.
        weights: what it was loaded from, for messages.
        model: the model in memory, which is brought to the device.
        forward: pixels (B, 3, H, W) on the device to the last state, (B, F, h, w) of a CNN, (B, N, F) of a transformer.
        pixels: one image as normalised pixels, (3, H, W) float32; raises ImageError.
        identity: everything that changes the states but the device and the options, as JSON.
    """

    def __init__(
        self,
        options: NetworkOptions,
        weights: str,
        model: nn.Module,
        forward: Callable[[Tensor], Tensor],
        pixels: Callable[[Image.Image], PixelsCHW],
        identity: Mapping[str, Any],
    ) -> None:
        self.device, self.dtype = torch.device(options.device), getattr(torch, options.dtype)
        self.weights, self.forward, self.pixels = weights, forward, pixels
        model.eval().requires_grad_(False).to(self.device, self.dtype).to(memory_format=torch.channels_last)
        size = {} if options.image_size is None else {"image_size": options.image_size}
        numbers = {} if options.dtype == "float32" else {"dtype": options.dtype}
        self.identity: Mapping[str, Any] = {**identity, "seed": options.seed, **size, **numbers}

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
