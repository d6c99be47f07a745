"""Any model from plain values, as configurations and saved models hold them."""

from collections.abc import Callable
from typing import Any

from vse_core.models.hierarchical import build_hierarchical_model
from vse_core.models.model import Model
from vse_core.models.two_tower import TwoTower, build_two_tower
from vse_core.models.unified import build_unified_model


def build_dual_encoder(
    feature_dim: int | None,  # noqa: ARG001
    vocabulary_size: int,
    embed_dim: int | None,  # noqa: ARG001
    image: dict[str, Any],
    text: dict[str, Any],  # noqa: ARG001
) -> TwoTower:
    """Build a model of both towers of a dual encoder; see :func:`~vse_core.encoders.dual.build_dual_encoders`.

    Raises ValueError where its weights cannot be used, or captions have more token ids than it knows.
    """
    # Imported when asked for: torchvision takes seconds.
    from vse_core.encoders.dual import build_dual_encoders

    images, texts = build_dual_encoders(**image)
    if vocabulary_size > texts.vocabulary_size:
        raise ValueError(
            f"captions consist of {vocabulary_size} token ids, the dual encoder knows {texts.vocabulary_size}: its "
            "weights and its tokenizer are of two models"
        )
    return TwoTower(images, texts)


BUILDERS: dict[tuple[str, str], Callable[..., Model]] = {
    ("regions", "components"): build_unified_model,
    ("levels", "role_graphs"): build_hierarchical_model,
    ("dual_encoder", "dual_encoder"): build_dual_encoder,
}
"""Builders of the models whose two sides belong together, by their names; others are two-tower models."""


def build_model(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int | None, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    """Build a model by the names of its sides: one of `BUILDERS`, or else two towers.

    ``image`` and ``text`` are name and options of either side; see
    :func:`~vse_core.models.two_tower.build_two_tower` and the builders. The model keeps the arguments, with which it is
    saved.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    model = _build(feature_dim, vocabulary_size, embed_dim, image, text)
    sizes = {"feature_dim": feature_dim, "vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    model.specification = {**sizes, "image": image, "text": text}
    return model


def _build(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int | None, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in BUILDERS:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    takes_pixels = names[0] == "dual_encoder"
    if embed_dim is None and not takes_pixels:
        raise ValueError("embed_dim must be given: only a dual encoder has a width of its own")
    if names not in BUILDERS:
        assert embed_dim is not None
        return build_two_tower(feature_dim, vocabulary_size, embed_dim, image, text)
    if feature_dim is None and not takes_pixels:
        raise ValueError(f"the image side {names[0]!r} takes features, not pixels: feature_dim must be given")
    sides = ({key: value for key, value in side.items() if key != "name"} for side in (image, text))
    return BUILDERS[names](feature_dim, vocabulary_size, embed_dim, *sides)
