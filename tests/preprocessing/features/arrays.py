"""The features alone of what an extractor gives."""

from collections.abc import Sequence
from typing import Any

from preprocessing.features.extractor import FeaturesNF


def arrays(extractor: Any, items: Sequence[Any]) -> list[FeaturesNF]:
    """Return the features (N, F) of each item."""
    return [stored.features for stored in extractor(items)]
