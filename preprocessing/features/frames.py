"""Frames of videos, sampled evenly: as upright RGB images, and as one vector each by a CNN."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from preprocessing.features.extractor import ExtractorError, FeaturesNF, as_features
from preprocessing.features.images import MAX_PIXELS, ImageError, read_image_bytes
from preprocessing.features.networks import build_cnn
from preprocessing.reading import damage_as

try:
    import av
except ImportError as error:
    raise ExtractorError("frames need PyAV: pip install 'vse-pipeline[features]'") from error

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

_VERSION = 2

# T frames of a video as the network's pixels.
PixelsTCHW = npt.NDArray[np.float32]
# Containers that do not count their frames tell a duration, which is rounded: so few missing frames are not a loss.
_TOLERANCE = 1.5


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


def decode_frames(data: bytes, count: int, max_pixels: int = MAX_PIXELS) -> list[Image.Image]:
    """The RGB frames in the middle of `count` equal parts of a video; a shorter video gives each of its frames.

    The file is read twice: once without decoding, to count the frames, then up to the last frame that is wanted: so a
    file that was cut short is noticed by an ImageError, whatever the container says.
    """
    images: list[Image.Image] = []
    with damage_as(ImageError, "damaged video", "copy it again"):
        wanted = _middles(_count_frames(data, max_pixels), count)
        with av.open(io.BytesIO(data), "r") as container:
            for number, frame in enumerate(container.decode(_video_stream(container, max_pixels))):
                if frame.is_corrupt:
                    raise ImageError(f"damaged video: frame {number} cannot be decoded completely")
                if number == wanted[len(images)]:
                    # Players turn a frame by what the file says (telephones film lying on their side).
                    images.append(frame.to_image().rotate(frame.rotation, expand=True))
                    if len(images) == len(wanted):
                        return images
    raise ImageError(f"damaged video: {len(images)} of the {len(wanted)} frames that were chosen can be decoded")


def _middles(total: int, count: int) -> list[int]:
    """Numbers of the frames in the middle of equal parts: of 10 frames and 2 parts 2 and 7."""
    parts = min(count, total)
    return [(2 * part + 1) * total // (2 * parts) for part in range(parts)]


def _count_frames(data: bytes, max_pixels: int) -> int:
    """The number of frames that are there; ImageError if the container announces more."""
    with av.open(io.BytesIO(data), "r") as container:
        stream = _video_stream(container, max_pixels)
        count, hidden, end = 0, 0, 0.0
        for packet in container.demux(stream):
            if packet.size == 0:  # marks the end
                continue
            if packet.is_corrupt:
                raise ImageError("damaged video: a packet is corrupt or cut short")
            if packet.is_discard:  # not shown: others are decoded by it
                hidden += 1
            else:
                count += 1
            if packet.pts is not None:
                end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        if count == 0:
            raise ImageError("a video without frames")
        if stream.frames > count + hidden:
            raise ImageError(f"cut short: {count + hidden} of {stream.frames} frames")
        announced, a_frame = _duration(stream, container), float(1 / (stream.average_rate or 1))
        if stream.frames == 0 and end + _TOLERANCE * a_frame < announced:
            raise ImageError(f"cut short: {end:.1f} of {announced:.1f} seconds")
    return count


def _duration(stream: VideoStream, container: InputContainer) -> float:
    """Return the duration in seconds by a container without a count of frames; 0 if it has none."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    sole = len(container.streams) == 1  # sound may be longer than the frames
    return container.duration / 1_000_000 if sole and container.duration is not None else 0.0


def _video_stream(container: InputContainer, max_pixels: int) -> VideoStream:
    if not container.streams.video:
        raise ImageError("not a video: the file has no video stream")
    stream = container.streams.video[0]
    if stream.codec_context is None:  # and without it the stream has neither width nor height
        raise ImageError("damaged video: the codec of its video stream is unknown")
    if stream.width * stream.height > max_pixels:
        raise ImageError(f"{stream.width} x {stream.height} pixels, more than the limit of {max_pixels}")
    return stream
