"""Small random dual encoders, written as they are published: weights, tokenizer, settings for images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPProcessor,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipProcessor,
)

from preprocessing.captions.subwords import SubwordTokenizer
from tests.tokenizers import clip_bpe, library_tokenizer, train_on, unigram

SIDE, POSITIONS = 32, 24
_TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def write_dual_encoder(folder: Path, model_type: str, texts: Sequence[str]) -> Path:
    """Write a random CLIP or SigLIP, whose tokenizer was trained on texts, by transformers' own `save_pretrained`."""
    is_clip = model_type == "clip"
    trained = train_on(clip_bpe() if is_clip else unigram(), texts)
    tokenizer = library_tokenizer(trained, "clip_bpe" if is_clip else "siglip", POSITIONS)
    vision = {**_TOWER, "image_size": SIDE, "patch_size": 8}
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    text |= dict.fromkeys(("eos_token_id", "bos_token_id", "pad_token_id"), tokenizer.eos_token_id)
    sizes: dict[str, Any] = {"text_config": text, "vision_config": vision}
    torch.manual_seed(0)
    model = AutoModel.from_config(CLIPConfig(**sizes, projection_dim=12) if is_clip else SiglipConfig(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():  # the initial ones are too small to tell inputs apart
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    square = {"height": SIDE, "width": SIDE}
    images = (
        CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=square)
        if is_clip
        else SiglipImageProcessor(size=square)
    )
    (CLIPProcessor if is_clip else SiglipProcessor)(images, tokenizer).save_pretrained(folder)
    return folder


def dual_specification(folder: Path, lora: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of `build_model` for both towers of a checkpoint."""
    tokenizer = SubwordTokenizer.from_pretrained(str(folder), for_tower=True)
    image = {"name": "dual_encoder", "weights": str(folder), "lora": lora}
    sizes = {"feature_dim": None, "vocabulary_size": len(tokenizer), "embed_dim": None}
    return {**sizes, "image": image, "text": {"name": "dual_encoder"}}
