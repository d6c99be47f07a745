"""Frames of videos: one vector a frame, the average of a CNN's last feature map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from preprocessing.features.extractor import FeaturesNF, as_features
from preprocessing.features.images import MAX_PIXELS, read_image_bytes
from preprocessing.features.networks import build_cnn
from preprocessing.features.videos import decode_frames

_VERSION = 1

# T frames of a video as the network's pixels.
PixelsTCHW = npt.NDArray[np.float32]


class FrameExtractor:
    """A video as a set of T frame vectors float16: the middles of T equal parts of it, or all of fewer frames.

    Each is the average over the cells of the network's last feature map, as the published features of videos are (the
    mean pooling of a ResNet). `frames` is T, at least 1; other arguments and errors are those of :func:`build_cnn`.
    """

    name = "frames"
    max_pixels = MAX_PIXELS

    def __init__(self, frames: int = 12, **network: Any) -> None:
        self._frames = frames
        self._network = build_cnn(**network)

    def load(self, uri: str) -> PixelsTCHW:
        """The frames of one video as the model's normalised pixels, (T, 3, H, W) float32."""
        images = decode_frames(read_image_bytes(uri), self._frames, self.max_pixels)
        return np.stack([self._network.pixels(image) for image in images])

    def __call__(self, items: Sequence[PixelsTCHW]) -> list[FeaturesNF]:
        """Return the features (T, F) float16 of each video; the frames of one video are one forward pass."""
        averages = [
            torch.stack([map_Fhw.mean((1, 2)) for map_Fhw in self._network.states(list(frames_TCHW))])
            for frames_TCHW in items
        ]
        return as_features(averages, self._network.weights)

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, the number of frames, and all that is done to them before."""
        return {"extractor": "frames", "version": _VERSION, "frames": self._frames, **self._network.identity}
