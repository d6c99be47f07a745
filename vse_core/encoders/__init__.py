"""Encoders: features of images and tokens of captions become vectors of unit length in the joint space."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from vse_core.encoders.bert import BertEncoder
from vse_core.encoders.image import FeatureEncoder
from vse_core.encoders.text import BiGRUEncoder
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


IMAGE_ENCODERS: dict[str, Callable[..., nn.Module]] = {"features": FeatureEncoder, "backbone": _build_backbone}


def build_image_encoder(
    name: str, feature_dim: int | None, embed_dim: int, pooling: nn.Module, **options: Any
) -> nn.Module:
    """Build an image encoder by name; it returns (B, K, D) unit vectors.

    ``features`` is called with features and their lengths (:class:`~vse_core.encoders.image.FeatureEncoder`),
    ``backbone`` with pixels and the cells to keep (:class:`~vse_core.encoders.backbone.BackboneEncoder`); a backbone
    has its own width and takes None for ``feature_dim``. Options are those of the class, for ``backbone`` those of
    `_build_backbone`, explained at :func:`~vse_core.encoders.networks.build_network` and `resolve_pixels`.

    Raises:
        ValueError: the name or an option is unknown, or weights, architecture and image size do not fit together.
    """
    width = {} if feature_dim is None else {"feature_dim": feature_dim}
    return choose("image encoder", IMAGE_ENCODERS, name, embed_dim=embed_dim, pooling=pooling, **width, **options)


TEXT_ENCODERS: dict[str, Callable[..., nn.Module]] = {"bigru": BiGRUEncoder, "bert": BertEncoder}


def build_text_encoder(
    name: str, vocabulary_size: int, embed_dim: int, pooling: nn.Module, **options: Any
) -> nn.Module:
    """Build ``bigru`` or ``bert``, given ``(tokens_CL, lengths_C)`` for ``(C, D)`` unit vectors (ValueError)."""
    sizes = {"vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    return choose("text encoder", TEXT_ENCODERS, name, pooling=pooling, **sizes, **options)
