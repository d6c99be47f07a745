"""Two towers, one space: the shape shared by VSE++ and VSE-infinity."""

from torch import Tensor

from vse_core.models.model import Model


class TwoTower(Model):
    """An image encoder and a text encoder whose outputs of unit length are compared by their inner product.

    The image encoder is ``(features_BNF, lengths_B) -> (B, K, D)``, or ``(pixels_BCHW, kept_BN) -> (B, K, D)``; the
    text encoder is ``(tokens_CL, lengths_C) -> (C, D)``.
    """

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor) -> Tensor:
        """One unit vector per caption: (C, D) in float32."""
        texts_CD: Tensor = self.text_encoder(tokens_CL, lengths_C)
        return texts_CD

    def forward(
        self, images: Tensor, lengths_or_mask: Tensor, tokens_BL: Tensor, token_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch of pairs into (B, K, D) and (B, D), in one call as DistributedDataParallel requires."""
        return self.encode_images(images, lengths_or_mask), self.encode_texts(tokens_BL, token_lengths_B)
