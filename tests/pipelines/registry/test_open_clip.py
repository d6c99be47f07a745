"""Checkpoints of open_clip, with random weights, against its own networks, pixels and tokenizers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import PreTrainedTokenizerFast

from pipelines.exports.published_format import write_published
from pipelines.inference.embedder import Embedder
from pipelines.kinds.words import pretrained_tokenizer
from pipelines.registry.models import find_bundle
from pipelines.schema.encoders import DualImageEncoderConfig
from preprocessing.loading.pixels import decode_pixels, full_view
from tests.tokenizers import library_tokenizer, train_on, unigram
from vse_core import hub
from vse_core.models import build_model, load_model
from vse_core.models.onnx import export_onnx, onnx_difference
from vse_core.open_clip_format import CONFIG

TEXTS = ["a red square", "It&rsquo;s a “Blue” ring, isn't_it! ﬁne", "two dogs"]
LONG = "a man on a green bicycle " * 30
_TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
_VIT = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
_CAUSELESS = {**_TEXT, "no_causal_mask": True}
_BIG_VISION = {**_CAUSELESS, "vocab_size": 512, "hf_tokenizer_name": "of/its-own", "pool_type": "last"}
_CANONICAL = {"tokenizer_kwargs": {"clean": "canonicalize"}, "proj_bias": True}
_CLIPS = {"tokenizer_mode": "clips"}
_TIMM = {"timm_model_name": "test_efficientnet", "timm_pool": "avg", "timm_proj": None, "image_size": 64}
_MAP = {"timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none", "image_size": 160}
_HALF = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "clip": ({"embed_dim": 16, "vision_cfg": _VIT, "text_cfg": _TEXT}, {}),
    "mobileclip2": (
        {"embed_dim": 16, "vision_cfg": _TIMM, "text_cfg": _CAUSELESS, "custom_text": True},
        {"mean": [0.0] * 3, "std": [1.0] * 3, "interpolation": "bilinear"},
    ),
    "siglip2": (
        {
            **{"embed_dim": 64, "vision_cfg": _MAP, "text_cfg": {**_BIG_VISION, **_CANONICAL}},
            **{"init_logit_bias": -10, "custom_text": True},
        },
        _HALF,
    ),
    "openvision": (
        {"embed_dim": 16, "vision_cfg": _VIT, "text_cfg": {**_BIG_VISION, **_CLIPS}},
        {"resize_mode": "longest"},
    ),
}


def write(folder: Path, kind: str) -> Path:
    """Write a checkpoint as open_clip publishes it; of CLIP's kind with a pickle of tensors and the old names."""
    open_clip = pytest.importorskip("open_clip", reason="pip install open_clip_torch")
    model_cfg, preprocess = KINDS[kind]
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}))
    torch.manual_seed(0)
    network = open_clip.create_model(f"local-dir:{folder}")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    torch.save(network.state_dict(), folder / "open_clip_pytorch_model.bin")
    if "hf_tokenizer_name" in model_cfg["text_cfg"]:
        tokenizer: PreTrainedTokenizerFast = library_tokenizer(train_on(unigram(), [*TEXTS, LONG]), "siglip")
        tokenizer.add_special_tokens({"bos_token": "[B]", "cls_token": "[C]", "pad_token": "[P]"})
        tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_ids_pixels_and_vectors_are_those_of_open_clip(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = write(tmp_path / "weights", kind)
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "work"))
    _, bundle = find_bundle(f"hf:{weights}", "unused")
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    expected = require_same(weights, embedder, tmp_path)
    (tmp_path / "out").mkdir()
    assert write_published(embedder.model, bundle / "model", tmp_path / "out") == "open_clip"
    if kind == "clip":  # a graph takes a minute
        export_onnx(embedder.model, tmp_path / "onnx")
        differences = onnx_difference(embedder.model, tmp_path / "onnx", list(embedder.texts.batches(TEXTS)))
        assert max(differences.values()) < 1e-5
    for one, other in zip(require_same(tmp_path / "out", embedder, tmp_path), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def require_same(weights: Path, embedder: Embedder, folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compare all that a checkpoint makes of images and texts with the library; return its vectors and scale."""
    import open_clip

    library, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{weights}")
    library.eval()
    tokenizer, encoder = open_clip.get_tokenizer(f"local-dir:{weights}"), embedder.texts.caption_encoder
    tokens = tokenizer([*TEXTS, LONG])
    assert [encoder.encode(text) for text in [*TEXTS, LONG]] == tokens.tolist()
    assert [encoder.truncates(text) for text in ["two dogs", LONG]] == [False, True]
    image_encoder: Any = embedder.model.image_encoder
    rng, pixels, files = np.random.default_rng(0), [], []
    for height, width in ((50, 77), (90, 41), (33, 33)):
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        files.append(folder / f"{height}.jpg")  # other formats become JPEG before they are read
        image.save(files[-1])
        pixels.append(preprocess(Image.open(files[-1])))
        ours = full_view(decode_pixels(files[-1].read_bytes()), image_encoder.image_size, image_encoder.view)
        normalised = (ours.float() - image_encoder.mean) / image_encoder.std
        torch.testing.assert_close(normalised, pixels[-1], atol=2e-6, rtol=0)  # half a grey level would be 2e-3
    with torch.no_grad():
        of_images = library.encode_image(torch.stack(pixels), normalize=True)
        of_texts = library.encode_text(tokens[:1], normalize=True)
    torch.testing.assert_close(embedder.embed_images([str(file) for file in files])[:, 0], of_images, atol=1e-5, rtol=0)
    torch.testing.assert_close(embedder.embed_texts(TEXTS[:1]), of_texts, atol=1e-5, rtol=0)
    return of_images, of_texts, library.logit_scale.detach()


@pytest.mark.parametrize("kind", ["clip", "siglip2", "mobileclip2"])
def test_updates_of_attention_are_trained_saved_and_merged(kind: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "weights", kind)
    tokenizer = pretrained_tokenizer(str(weights), for_tower=True)
    image = {"name": "dual_encoder", "weights": str(weights), "lora": {"rank": 2, "alpha": 4.0, "dropout": 0.0}}
    sizes: dict[str, Any] = {"feature_dim": None, "vocabulary_size": len(tokenizer), "embed_dim": None}
    model = build_model(**sizes, image=image, text={"name": "dual_encoder"})
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len([name for name in trained if name.startswith("text_encoder")]) == 2 * 2 * 2  # blocks, weights, factors
    assert all("lora_" in name for name in trained)
    frozen = {name: tensor.clone() for name, tensor in model.state_dict().items() if name not in trained}
    encoder: Any = model.image_encoder
    pixels = torch.rand(3, 3, encoder.image_size, encoder.image_size) * 255
    batch = (pixels, torch.ones(3, 1), torch.tensor([tokenizer.encode(text) for text in TEXTS]), torch.full((3,), 16))
    optimizer = torch.optim.AdamW([*model.parameters()], lr=0.05)
    before = [vectors.detach() for vectors in model.eval()(*batch)]
    for _ in range(3):
        images, texts = model.train()(*batch)
        torch.nn.functional.cross_entropy(images[:, 0] @ texts.T / 0.1, torch.arange(3)).backward()
        optimizer.step()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in frozen.items())
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.state_dict().keys() == build_model(**loaded.specification).state_dict().keys()
    assert not any("lora_" in name or "parametrizations" in name for name in loaded.state_dict())
    after = loaded(*batch)
    for one, other in zip(model.eval()(*batch), after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert not torch.allclose(after[1], before[1], atol=1e-3)
    with pytest.raises(ValueError, match="without it; set it to 0"):
        build_model(**sizes, image={**image, "lora": {**image["lora"], "dropout": 0.1}}, text={"name": "dual_encoder"})


def test_what_is_not_read_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CONFIG).write_text("{}")
    settings = DualImageEncoderConfig(name="dual_encoder", weights=str(tmp_path))
    monkeypatch.setattr("pipelines.schema.encoders.find_spec", lambda _: object())
    assert "holds no weights" in str(settings.missing_file())
    monkeypatch.setattr("pipelines.schema.encoders.find_spec", lambda _: None)
    assert str(settings.missing_file()).endswith("is of open_clip: pip install 'vse-pipeline[open_clip]'")
    monkeypatch.setattr(hub, "_fetch", lambda name, file: tmp_path / file)
    monkeypatch.setattr(hub, "open_clip", lambda: None)
    (tmp_path / "config.json").write_text('{"architecture": "of timm"}')
    assert hub.open_clip_source("timm/ViT-B-16-SigLIP2") == "hf-hub:timm/ViT-B-16-SigLIP2"
    assert hub.open_clip_source(str(tmp_path)) == f"local-dir:{tmp_path}"
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    assert hub.open_clip_source("laion/CLIP") is None
    assert hub.open_clip_source(str(tmp_path)) is None
