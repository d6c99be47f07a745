"""Small random vision networks, written as they are published: transformers' and timm's."""

from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import save_for_hf
from transformers import (
    Aimv2Config,
    AutoModel,
    BertConfig,
    BlipConfig,
    CLIPConfig,
    CLIPProcessor,
    Dinov2WithRegistersConfig,
    MetaClip2Config,
    PretrainedConfig,
    ResNetConfig,
    SiglipConfig,
    SwinConfig,
    VisionTextDualEncoderConfig,
    ViTConfig,
    ViTImageProcessor,
)

from tests.tokenizers import clip_bpe, library_tokenizer

SIDE = 64
_TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 16}
_SWIN = {"image_size": SIDE, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
_IMAGES = ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])

# Name -> configuration of a network whose state is a set of tokens.
PATCHES: dict[str, PretrainedConfig] = {
    "vit": ViTConfig(**_TOWER, intermediate_size=24),
    "dinov2_registers": Dinov2WithRegistersConfig(**_TOWER),
    "swin": SwinConfig(**_SWIN),
}
# Of a network whose state is a feature map.
MAPS: dict[str, PretrainedConfig] = {
    "resnet": ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
}
# Of a network with a tower of texts and one of images.
_TEXTS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 11,
}
_IMAGES_AND_TEXTS = {"vision_config": {**_TOWER, "intermediate_size": 24}, "text_config": _TEXTS}
DUAL: dict[str, PretrainedConfig] = {
    "clip": CLIPConfig(**_IMAGES_AND_TEXTS),
    "siglip": SiglipConfig(**_IMAGES_AND_TEXTS),
    "metaclip_2": MetaClip2Config(**_IMAGES_AND_TEXTS),
    "aimv2": Aimv2Config(**_IMAGES_AND_TEXTS),
    "blip": BlipConfig(**_IMAGES_AND_TEXTS),
    "vit_and_bert": VisionTextDualEncoderConfig.from_vision_text_configs(
        ViTConfig(**_TOWER, intermediate_size=24), BertConfig(**_TEXTS)
    ),
}
TIMM_PATCHES: dict[str, dict[str, Any]] = {"test_vit": {"img_size": SIDE}}
# Tokens that stand for no patch, none of them a class token.
TIMM_REGISTERS = {"vit_medium_patch16_reg4_gap_256": {"img_size": SIDE, "embed_dim": 16, "depth": 2, "num_heads": 2}}
# The second one gives its map channels last.
TIMM_MAPS: dict[str, dict[str, Any]] = {
    "test_efficientnet": {},
    "swin_tiny_patch4_window7_224": {"img_size": SIDE, "depths": (1, 1), "embed_dim": 8, "num_heads": (1, 2)},
}


def write_vision_network(folder: Path, name: str) -> Path:
    """Write one of the networks above with random weights."""
    torch.manual_seed(0)
    options = (TIMM_PATCHES | TIMM_REGISTERS | TIMM_MAPS).get(name)
    if options is not None:
        model = timm.create_model(name, pretrained=False, **options)
        model.pretrained_cfg |= {"input_size": (3, SIDE, SIDE)}
        save_for_hf(model, folder, model_args=options, safe_serialization=True)
        return folder
    config = (PATCHES | MAPS | DUAL)[name]
    AutoModel.from_config(config).save_pretrained(folder)
    if name in DUAL:  # with a tokenizer, the settings for images become a part of processor_config.json
        CLIPProcessor(_IMAGES, library_tokenizer(clip_bpe(), "clip_bpe")).save_pretrained(folder)
    else:
        _IMAGES.save_pretrained(folder)
    return folder
