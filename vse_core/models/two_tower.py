"""Two towers, one space: the shape shared by VSE++ and VSE-infinity."""

from typing import Any

from torch import Tensor, nn

from vse_core.encoders import build_image_encoder, build_text_encoder
from vse_core.models.model import Model
from vse_core.pooling import build_pooling, build_views


class TwoTower(Model):
    """An image encoder and a text encoder whose outputs of unit length are compared by their inner product.

    The image encoder is ``(features_BNF, lengths_B) -> (B, K, D)``, or ``(pixels_BCHW, kept_BN) -> (B, K, D)``; the
    text encoder is ``(tokens_CL, lengths_C) -> (C, D)``.
    """

    def __init__(self, image_encoder: nn.Module, text_encoder: nn.Module) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder

    def encode_images(self, images: Tensor, lengths_or_mask: Tensor) -> Tensor:
        """K unit vectors per image, (B, K, D), of features and lengths, or of pixels and a mask of cells to keep."""
        images_BKD: Tensor = self.image_encoder(images, lengths_or_mask)
        return images_BKD

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """One unit vector per caption: (C, D) in float32."""
        texts_CD: Tensor = self.text_encoder(tokens_CL, lengths_C)
        return texts_CD

    def forward(
        self, images: Tensor, lengths_or_mask: Tensor, tokens_BL: Tensor, token_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch of pairs into (B, K, D) and (B, D), in one call as DistributedDataParallel requires."""
        return self.encode_images(images, lengths_or_mask), self.encode_texts(tokens_BL, token_lengths_B)


def build_two_tower(
    feature_dim: int | None, vocabulary_size: int, embed_dim: int, image: dict[str, Any], text: dict[str, Any]
) -> TwoTower:
    """Build a two-tower model from plain values.

    Args:
        feature_dim: F, width of the image features; None for a backbone, which takes pixels.
        vocabulary_size: number of token ids that captions consist of.
        embed_dim: D, width of the joint space.
        image: ``{"name": "features" (default) or "backbone", "pooling": {"name": ..., **options}, "views": K (1),
            **options}``; see :func:`~vse_core.encoders.build_image_encoder`.
        text: ``{"name": "bigru" (default) or "bert", "pooling": {"name": ..., **options}, **options}``; see
            :func:`~vse_core.encoders.build_text_encoder`.

    Raises:
        ValueError: an encoder, an aggregator, an option, the number of views or pretrained weights cannot be used.
    """
    image_options = {"name": "features", **image}
    text_options = {"name": "bigru", **text}
    views = build_views(image_options.pop("views", 1), dim=embed_dim, **image_options.pop("pooling"))
    image_encoder = build_image_encoder(feature_dim=feature_dim, embed_dim=embed_dim, pooling=views, **image_options)
    words = build_pooling(dim=embed_dim, **text_options.pop("pooling"))
    sizes: dict[str, Any] = {"vocabulary_size": vocabulary_size, "embed_dim": embed_dim}
    return TwoTower(image_encoder, build_text_encoder(**sizes, pooling=words, **text_options))
