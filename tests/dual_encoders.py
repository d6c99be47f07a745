"""Small random dual encoders, written as they are published: weights, tokenizer, settings for images."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, CLIPConfig, SiglipConfig

from preprocessing.captions import SubwordTokenizer
from tests.tokenizers import clip_bpe, train_on, unigram, write_tokenizer

SIDE, POSITIONS = 32, 24
_TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def write_dual_encoder(folder: Path, model_type: str, texts: Sequence[str]) -> Path:
    """Write a random CLIP or SigLIP whose tokenizer was trained on texts."""
    folder.mkdir(parents=True, exist_ok=True)
    is_clip = model_type == "clip"
    tokenizer = train_on(clip_bpe() if is_clip else unigram(), texts)
    write_tokenizer(tokenizer, folder, "clip_bpe" if is_clip else "siglip", POSITIONS)
    end = tokenizer.token_to_id("<|endoftext|>" if is_clip else "</s>")
    vision = {**_TOWER, "image_size": SIDE, "patch_size": 8}
    text = {**_TOWER, "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": POSITIONS}
    text |= {"eos_token_id": end, "bos_token_id": end, "pad_token_id": end}
    sizes: dict[str, Any] = {"text_config": text, "vision_config": vision}
    torch.manual_seed(0)
    model = AutoModel.from_config(CLIPConfig(**sizes, projection_dim=12) if is_clip else SiglipConfig(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():  # the initial ones are too small to tell inputs apart
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    images = {"do_rescale": True, "do_normalize": True, "do_resize": True, "resample": 3, "rescale_factor": 1 / 255}
    if is_clip:
        images |= {"image_processor_type": "CLIPImageProcessor", "do_center_crop": True, "do_convert_rgb": True}
        images |= {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
        images |= {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
    else:
        images |= {"image_processor_type": "SiglipImageProcessor", "size": {"height": SIDE, "width": SIDE}}
        images |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


def dual_specification(folder: Path, lora: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of `build_model` for both towers of a checkpoint."""
    tokenizer = SubwordTokenizer.from_pretrained(str(folder), for_tower=True)
    image = {"name": "dual_encoder", "weights": str(folder), "lora": lora}
    sizes = {"feature_dim": None, "vocabulary_size": len(tokenizer), "embed_dim": None}
    return {**sizes, "image": image, "text": {"name": "dual_encoder"}}
