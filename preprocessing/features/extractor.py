"""The protocol of the feature extractors, and the error for one that cannot be built or run."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from preprocessing.features.images import MAX_PIXELS, ImageError, bounded_image, read_image_bytes

if TYPE_CHECKING:
    from torch import Tensor

# A set of N feature vectors of width F, float16, C-contiguous.
FeaturesNF = npt.NDArray[np.float16]


class ExtractorError(Exception):
    """An extractor cannot be built, or gives features that cannot be stored; says what is wrong and how to fix it."""


class Grid(NamedTuple):
    """A set of rows x columns cells of the image, row by row, behind `others` vectors of no place (a class token)."""

    rows: int
    columns: int
    others: int = 0


@dataclass(frozen=True, slots=True)
class RegionFeatures:
    """Feature vectors (N, F), and values or rows of values of each vector's region by name, such as "boxes" (N, 4).

    `grid` is that of vectors that are cells or patches; None of regions, frames and whatever is not known to be one.
    """

    features: FeaturesNF
    companions: Mapping[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]] = field(default_factory=dict)
    grid: Grid | None = None


# What is stored of an image: features, with or without companions, or a file.
Stored = FeaturesNF | RegionFeatures | bytes


def checked_features(features: npt.NDArray[Any]) -> FeaturesNF:
    """Check published features and convert them to their stored type; ImageError names what is wrong."""
    if features.ndim != 2 or features.dtype.kind != "f" or features.size == 0:
        raise ImageError(f"features are {features.dtype} of shape {features.shape}, floats of shape (N, F) are needed")
    with np.errstate(over="ignore"):
        stored = np.array(features, dtype=np.float16, order="C")
    if not np.isfinite(stored).all():
        raise ImageError("features that are NaN, infinite or beyond the range of float16 (65504)")
    return stored


def as_features(states_NF: Sequence["Tensor"], weights: str) -> list[FeaturesNF]:
    """Sets of vectors (N, F) as they are stored, float16; ExtractorError if a value is not finite in it."""
    features = []
    for number, state_NF in enumerate(states_NF):
        stored = state_NF.half().cpu().contiguous()
        if not bool(stored.isfinite().all()):
            raise ExtractorError(
                f"{weights}: image {number} of a batch of {len(states_NF)} has features that are NaN or beyond the "
                f"range of float16 (largest {float(state_NF.abs().max()):.3g}, limit 65504); the weights are "
                "damaged or not meant for these preprocessor settings, or the network needs bfloat16 instead of float16"
            )
        features.append(stored.numpy())
    return features


class Extractor(Protocol):
    """Turns images into sets of feature vectors, or into files.

    `load` does the work of one image that needs no model, and may run in other threads; calling the extractor does the
    work of the model on a batch of what `load` returned.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The feature key in each sample of the shards: "grid", "region"; of files their extension."""

    def load(self, uri: str) -> Any:
        """One image, ready for the model; ImageError if it cannot be used, ExtractorError without its source."""

    @abstractmethod
    def __call__(self, items: Sequence[Any]) -> Sequence[Stored]:
        """Return what is stored of each item of a batch under the extractor's name.

        Features are (N, F), alone or with their companions; of a file its contents. Raises ExtractorError if a
        feature is not finite in float16.
        """

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that changes the output, as JSON: equal identities mean equal features."""


class FileExtractor(Extractor):
    """An extractor of image files."""

    max_pixels: int = MAX_PIXELS

    def load(self, uri: str) -> Any:
        """Return one image, read and decoded, as the model takes it; raises ImageError."""
        return self.decode(read_image_bytes(uri))

    def decode(self, data: bytes, seen: Callable[[Image.Image], object] = id) -> Any:
        """Return the image of a file as the model takes it, once `seen` has had it decoded; raises ImageError."""
        with bounded_image(data, self.max_pixels) as image:
            seen(image)
            return self.prepare(data, image)

    @abstractmethod
    def prepare(self, data: bytes, image: Image.Image, /) -> Any:
        """Return one image, given by its file and decoded, as the model takes it; raises ImageError."""
