"""Models: two encoders whose outputs are compared; two towers, the shape shared by VSE++ and VSE-infinity."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from vse_core import registry
from vse_core.digests import write_digests
from vse_core.streams import beside

WEIGHTS = "model.safetensors"
SPECIFICATION = "model.json"


class Model(nn.Module):
    """An image encoder and a text encoder, and how a caption and an image are encoded with them."""

    specification: dict[str, Any]
    """The arguments of :func:`~vse_core.models.build_model` that the model was built from."""

    def __init__(self, image_encoder: nn.Module, text_encoder: nn.Module) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder

    def save(self, directory: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write ``model.safetensors`` and ``model.json``, the specification, with their digests.

        ``weights`` are copies of the model's, complete if processes share them. In the JSON an encoder's architecture
        takes the place of the pretrained weights that it started from, which are not needed to load the model.
        """
        weights = self.state_dict() if weights is None else weights
        tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
        save_file(tensors, directory / WEIGHTS)
        content = dict(self.specification)
        towers: dict[str, Any] = {"image": self.image_encoder, "text": self.text_encoder}
        for side, encoder in towers.items():
            if "weights" in content[side]:
                options = {key: value for key, value in content[side].items() if key != "weights"}
                content[side] = {**options, **encoder.rebuilt_by}
        if plugins := registry.origins(self.specification):
            content["plugins"] = plugins
        (directory / SPECIFICATION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        write_digests(directory, WEIGHTS, SPECIFICATION)

    def encode_images(self, images: Tensor, lengths_or_mask: Tensor) -> Any:
        """Encode features (B, N, F) with their lengths (B,), or pixels and a mask of cells to keep, into `Images`."""
        return self.image_encoder(images, lengths_or_mask)

    def encode_texts(self, tokens_CL: Tensor, lengths_C: Tensor, *extra: Any, **options: Any) -> Any:
        """Encode captions (C, L) of lengths (C,), with what else the model reads of them, into `Texts`."""
        return self.text_encoder(tokens_CL, lengths_C, *extra, **options)


class TwoTower(Model):
    """An image encoder and a text encoder whose outputs of unit length are compared by their inner product.

    The image encoder is ``(features_BNF, lengths_B) -> (B, K, D)``, or ``(pixels_BCHW, kept_BN) -> (B, K, D)``; the
    text encoder is ``(tokens_CL, lengths_C) -> (C, D)``.
    """

    def forward(
        self, images: Tensor, lengths_or_mask: Tensor, tokens_BL: Tensor, token_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch of pairs into (B, K, D) and (B, D), in one call as DistributedDataParallel requires."""
        images_BKD = beside("images", images, lambda: self.encode_images(images, lengths_or_mask))
        texts_BD = self.encode_texts(tokens_BL, token_lengths_B)
        return images_BKD(), texts_BD
