"""Any model from plain values, as configurations and saved models hold them."""

from typing import Any

from vse_core.models.hierarchical import HierarchicalModel, build_hierarchical_model
from vse_core.models.two_tower import TwoTower, build_two_tower
from vse_core.models.unified import UnifiedModel, build_unified_model

Model = TwoTower | UnifiedModel | HierarchicalModel


def build_model(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    """Build a model: UniVSE where the text side is named ``components``, HGR for ``role_graphs``, else two towers.

    ``image`` and ``text`` are name and options of either side; see
    :func:`~vse_core.models.two_tower.build_two_tower`, :func:`~vse_core.models.unified.build_unified_model` and
    :func:`~vse_core.models.hierarchical.build_hierarchical_model`.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in _TOGETHER:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    if names[0] not in dict(_TOGETHER):
        return build_two_tower(feature_dim, vocabulary_size, embed_dim, image, text)
    if feature_dim is None:
        raise ValueError("UniVSE and HGR take features, not pixels: feature_dim must be given")
    sides = ({key: value for key, value in side.items() if key != "name"} for side in (image, text))
    build = build_unified_model if names[0] == "regions" else build_hierarchical_model
    return build(feature_dim, vocabulary_size, embed_dim, *sides)


_TOGETHER = (("regions", "components"), ("levels", "role_graphs"))
