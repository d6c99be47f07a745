"""The protocol of the feature extractors, and the error for one that cannot be built or run."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

# A set of N feature vectors of width F, float16, C-contiguous.
FeaturesNF = npt.NDArray[np.float16]


class ExtractorError(Exception):
    """An extractor cannot be built, or gives features that cannot be stored; says what and how to mend it."""


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

    def __call__(self, items: Sequence[Any]) -> list[FeaturesNF] | list[bytes]:
        """The features (N, F) of each item of a batch, or the contents of its file."""
        ...

    def identity(self) -> dict[str, Any]:
        """Everything that changes the output, as JSON: equal identities mean equal features."""
        ...
