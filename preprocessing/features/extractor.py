"""The protocol of the feature extractors, and the error for one that cannot be built or run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

# A set of N feature vectors of width F, float16, C-contiguous.
FeaturesNF = npt.NDArray[np.float16]


class ExtractorError(Exception):
    """An extractor cannot be built, or gives features that cannot be stored; says what and how to mend it."""


@dataclass(frozen=True, slots=True)
class RegionFeatures:
    """A set of feature vectors with what else is known of each vector's region.

    Attributes:
        features: (N, F).
        companions: name -> N values, or N rows of values, float32 or int32, such as "boxes" (N, 4).
    """

    features: FeaturesNF
    companions: Mapping[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]] = field(default_factory=dict)


class Extractor(Protocol):
    """Turns images into sets of feature vectors, or into files.

    `load` does the work of one image that needs no model, and may run in other threads; calling the extractor does the
    work of the model on a batch of what `load` returned.
    """

    @property
    def name(self) -> str:
        """The feature's name, a member of each sample in the shards: "grid", "region"; of files their extension."""
        ...

    def load(self, uri: str) -> Any:
        """One image, ready for the model.

        Raises:
            ImageError: the image cannot be used; the message is the reason.
        """
        ...

    def __call__(self, items: Sequence[Any]) -> list[FeaturesNF] | list[RegionFeatures] | list[bytes]:
        """The features (N, F) of each item of a batch, alone or with their companions, or the contents of its file."""
        ...

    def identity(self) -> dict[str, Any]:
        """Everything that changes the output, as JSON: equal identities mean equal features."""
        ...
