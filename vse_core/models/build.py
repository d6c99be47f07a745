"""Any model from plain values, as configurations and saved models hold them."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from vse_core.encoders.bert import BertEncoder
from vse_core.encoders.components import ComponentEncoder
from vse_core.encoders.image import FeatureEncoder
from vse_core.encoders.regions import RegionEncoder
from vse_core.encoders.text import BiGRUEncoder
from vse_core.models.hierarchical import FrameLevelEncoder, HierarchicalModel, RoleGraphEncoder
from vse_core.models.model import Model
from vse_core.models.two_tower import TwoTower
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


IMAGE_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "features": FeatureEncoder,
    "backbone": _build_backbone,
    "regions": RegionEncoder,
    "levels": FrameLevelEncoder,
}
TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "bigru": BiGRUEncoder,
    "bert": BertEncoder,
    "components": ComponentEncoder,
    "role_graphs": RoleGraphEncoder,
}
DUAL_ENCODER = ("dual_encoder", "dual_encoder")
MODELS: dict[tuple[str, str], Callable[..., Model]] = {
    ("regions", "components"): UnifiedModel,
    ("levels", "role_graphs"): HierarchicalModel,
    DUAL_ENCODER: TwoTower,
}
"""Models whose two sides belong together, by their names; others are two-tower models."""

_DEFAULT_POOLINGS: dict[str, dict[str, Any]] = {
    "regions": {"pooling": {"name": "kmax", "k": 10}},
    "components": {"pooling": None},
    "levels": {"pooling": {"name": "gpo"}},
    "role_graphs": {"pooling": {"name": "gpo"}},
}
_WITH_VIEWS = ("features", "backbone")


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
            ``"views": K`` for features and a backbone, or for features alone ``"projections": K``; the options of a
            backbone are those of :func:`~vse_core.encoders.networks.build_network` and `resolve_pixels`; or those of
            :func:`~vse_core.encoders.dual.build_dual_encoders`.
        text: ``{"name": one of `TEXT_ENCODERS` ("bigru"), "pooling": {"name": ..., **options}, **options}``.

    Raises:
        ValueError: a name or an option is unknown, the two sides do not go together, or pretrained weights cannot be
            used.
    """
    names = (image.get("name", "features"), text.get("name", "bigru"))
    for one, other in MODELS:
        if (names[0] == one) != (names[1] == other):
            raise ValueError(f"the image side {one!r} and the text side {other!r} go together, got {names}")
    if names == DUAL_ENCODER:
        sides = _dual_sides(vocabulary_size, image)
    elif embed_dim is None:
        raise ValueError("embed_dim must be given: only a dual encoder has a width of its own")
    elif feature_dim is None and names[0] != "backbone":
        raise ValueError(f"the image side {names[0]!r} takes features, not pixels: feature_dim must be given")
    else:
        width = {} if feature_dim is None else {"feature_dim": feature_dim}
        sides = _towers(names, embed_dim, {**width, **image}, {"vocabulary_size": vocabulary_size, **text})
    model = MODELS.get(names, TwoTower)(*sides)
    sizes = {"feature_dim": feature_dim, "vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    model.specification = {**sizes, "image": image, "text": text}
    return model


def _towers(
    names: tuple[str, str], embed_dim: int, image: dict[str, Any], text: dict[str, Any]
) -> tuple[nn.Module, nn.Module]:
    """Build both encoders; their random weights are drawn in an order that recorded losses depend on."""
    if names[1] == "components":
        text = _with_pooling("components", embed_dim, text)
    image = _with_pooling(names[0], embed_dim, image)
    image_encoder = choose("image encoder", IMAGE_ENCODERS, names[0], **image)
    if names[1] != "components":
        text = _with_pooling(names[1], embed_dim, text)
    return image_encoder, choose("text encoder", TEXT_ENCODERS, names[1], **text)


def _with_pooling(name: str, embed_dim: int, side: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an encoder: those of a side, with its aggregator built."""
    options = {**_DEFAULT_POOLINGS.get(name, {}), "embed_dim": embed_dim, **side}
    options.pop("name", None)
    if options["pooling"] is not None:
        views = options.pop("views", 1) if name in _WITH_VIEWS else 1
        if views > 1 and options.get("projections", 1) > 1:
            raise ValueError("views are several aggregators or several projections, not both: give one of the two")
        options["pooling"] = build_views(views, dim=embed_dim, **options["pooling"])
    return options


def _dual_sides(vocabulary_size: int, image: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    # Imported when asked for: torchvision takes seconds.
    from vse_core.encoders.dual import build_dual_encoders

    images, texts = build_dual_encoders(**{key: value for key, value in image.items() if key != "name"})
    if vocabulary_size > texts.vocabulary_size:
        raise ValueError(
            f"captions consist of {vocabulary_size} token ids, the dual encoder knows {texts.vocabulary_size}: its "
            "weights and its tokenizer are of two models"
        )
    return images, texts
