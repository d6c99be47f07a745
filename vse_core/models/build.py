"""Any model from plain values, as configurations and saved models hold them."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from vse_core.encoders.components import ComponentEncoder
from vse_core.encoders.image import FeatureEncoder, RegionEncoder
from vse_core.encoders.text import BiGRUEncoder
from vse_core.models.hierarchical import FrameLevelEncoder, HierarchicalModel, RoleGraphEncoder
from vse_core.models.model import Model, TwoTower
from vse_core.models.unified import UnifiedModel
from vse_core.pooling import build_views
from vse_core.registry import choose


def _build_backbone(
    embed_dim: int,
    pooling: nn.Module,
    image_size: int,
    weights: str | None = None,
    architecture: str | dict[str, Any] | None = None,
    pixels: str | Mapping[str, Any] | None = None,
) -> nn.Module:
    # Imported when asked for: torchvision takes seconds, and features need none of it.
    from vse_core.encoders.backbone import BackboneEncoder
    from vse_core.encoders.networks import build_network, resolve_pixels

    network, architecture = build_network(architecture, weights)
    pixels = resolve_pixels(pixels, architecture, weights)
    return BackboneEncoder(network, architecture, embed_dim, pooling, image_size, pixels)


def _build_bert(
    vocabulary_size: int,
    embed_dim: int,
    pooling: nn.Module,
    weights: str | None = None,
    architecture: dict[str, Any] | None = None,
) -> nn.Module:
    # Imported when asked for: transformers takes seconds.
    from vse_core.encoders.bert import BertEncoder

    encoder = BertEncoder(embed_dim, pooling, weights, architecture)
    _require_known(vocabulary_size, encoder.vocabulary_size)
    return encoder


def _require_known(words: int, known: int) -> None:
    if words > known:
        raise ValueError(
            f"captions consist of {words} token ids, the text encoder knows {known}: its weights and its tokenizer are "
            "of two models"
        )


IMAGE_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "features": FeatureEncoder,
    "backbone": _build_backbone,
    "regions": RegionEncoder,
    "levels": FrameLevelEncoder,
}
TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "bigru": BiGRUEncoder,
    "bert": _build_bert,
    "components": ComponentEncoder,
    "role_graphs": RoleGraphEncoder,
}
MODELS: dict[tuple[str, str], Callable[..., Model]] = {
    ("regions", "components"): UnifiedModel,
    ("levels", "role_graphs"): HierarchicalModel,
    ("dual_encoder", "dual_encoder"): TwoTower,
}
"""Models whose two sides belong together, by their names; others are two-tower models."""


def build_model(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int | None, image: dict[str, Any], text: dict[str, Any]
) -> Model:
    """Build a model by the names of its sides: one of `MODELS`, or else two towers.

    The model keeps the arguments, with which it is saved.

    Args:
        feature_dim: F, width of the image features; None for what takes pixels.
        vocabulary_size: number of token ids that captions consist of.
        embed_dim: D, width of the joint space; None for a dual encoder, which has one of its own.
        image: ``{"name": one of `IMAGE_ENCODERS` ("features"), "pooling": {"name": ..., **options}, **options}``, with
            ``"views": K`` for several aggregators; a backbone's options are those of
            :func:`~vse_core.encoders.networks.build_network` and `resolve_pixels`, those of "dual_encoder" are
            :func:`~vse_core.encoders.dual.build_dual_encoders`'s.
        text: ``{"name": one of `TEXT_ENCODERS` ("bigru"), "pooling": {"name": ..., **options}, **options}``.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in MODELS:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    sizes = {"feature_dim": feature_dim, "vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    sides = _dual_sides(names, sizes, image) if embed_dim is None else _towers(names, sizes, image, text)
    model = MODELS.get(names, TwoTower)(*sides)
    model.specification = {**sizes, "image": image, "text": text}
    return model


def _towers(
    names: tuple[str, str], sizes: dict[str, Any], image: dict[str, Any], text: dict[str, Any]
) -> tuple[nn.Module, nn.Module]:
    """Build both encoders, the image's first: recorded losses depend on the order of their random weights."""
    width = {} if sizes["feature_dim"] is None else {"feature_dim": sizes["feature_dim"]}
    image_options = {**width, **_with_pooling(sizes["embed_dim"], image)}
    image_encoder = choose("image encoder", IMAGE_ENCODERS, names[0], **image_options)
    text_options = {"vocabulary_size": sizes["vocabulary_size"], **_with_pooling(sizes["embed_dim"], text)}
    return image_encoder, choose("text encoder", TEXT_ENCODERS, names[1], **text_options)


def _with_pooling(embed_dim: int, side: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an encoder: those of a side, with its aggregators built."""
    options = {key: value for key, value in side.items() if key not in ("name", "views")} | {"embed_dim": embed_dim}
    views = side.get("views", 1)
    if views > 1 and side.get("projections", 1) > 1:
        raise ValueError("views are several aggregators or several projections, not both: give one of the two")
    if side.get("pooling") is not None:
        options["pooling"] = build_views(views, dim=embed_dim, **side["pooling"])
    return options


def _dual_sides(names: tuple[str, str], sizes: dict[str, Any], image: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    # Imported when asked for: torchvision takes seconds.
    from vse_core.encoders.dual import build_dual_encoders

    if MODELS.get(names) is not TwoTower:
        raise ValueError("embed_dim must be given: only a dual encoder has a width of its own")
    images, texts = build_dual_encoders(**{key: value for key, value in image.items() if key != "name"})
    _require_known(sizes["vocabulary_size"], texts.vocabulary_size)
    return images, texts
