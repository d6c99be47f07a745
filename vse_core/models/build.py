"""Any model from plain values, as configurations and saved models hold them."""

from collections.abc import Callable
from typing import Any

from vse_core.models.hierarchical import build_hierarchical_model
from vse_core.models.model import Model
from vse_core.models.two_tower import build_two_tower
from vse_core.models.unified import build_unified_model

BUILDERS: dict[tuple[str, str], Callable[..., Model]] = {
    ("regions", "components"): build_unified_model,
    ("levels", "role_graphs"): build_hierarchical_model,
}
"""Builders of the models of features whose two sides belong together, by their names; others are two-tower models."""


def build_model(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    """Build a model by the names of its sides: one of `BUILDERS`, or else two towers.

    ``image`` and ``text`` are name and options of either side; see
    :func:`~vse_core.models.two_tower.build_two_tower` and the builders.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in BUILDERS:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    if names not in BUILDERS:
        return build_two_tower(feature_dim, vocabulary_size, embed_dim, image, text)
    if feature_dim is None:
        raise ValueError(f"the image side {names[0]!r} takes features, not pixels: feature_dim must be given")
    sides = ({key: value for key, value in side.items() if key != "name"} for side in (image, text))
    return BUILDERS[names](feature_dim, vocabulary_size, embed_dim, *sides)
