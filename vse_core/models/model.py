"""The interface of models: two encoders whose outputs are compared."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from vse_core.outputs import Images, Texts


class Model(nn.Module, ABC):
    """An image encoder and a text encoder, and how a caption and an image are encoded with them."""

    image_encoder: nn.Module
    text_encoder: nn.Module

    @abstractmethod
    def encode_images(self, images: Tensor, lengths_or_mask: Tensor) -> Images:
        """Encode features (B, N, F) with their lengths (B,), or pixels and a mask of cells to keep."""

    @abstractmethod
    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor, *extra: Any, **options: Any) -> Texts:
        """Encode captions (C, L) of lengths (C,), with what else the model reads of them."""
