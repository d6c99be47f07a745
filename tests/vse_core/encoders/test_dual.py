"""Dual encoders against transformers' own CLIPModel and SiglipModel: from image files and captions to similarities."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer, BertConfig, BertModel

from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.loading.batch import pad_tokens
from preprocessing.loading.pixels import decode_pixels, full_view
from tests.dual_encoders import POSITIONS, SIDE, dual_specification, write_dual_encoder
from vse_core.encoders.pretrained import architecture_of
from vse_core.models import Model, build_model, load_model, load_text_side

TEXTS = ["a red square above a blue star", "two dogs run.", "a star", "the man isn't on a green bicycle " * 8]


@pytest.fixture(scope="module", params=["clip", "siglip"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dual_encoder(tmp_path_factory.mktemp("dual"), request.param, TEXTS)


def pictures() -> list[Image.Image]:
    """Smooth ones, of several shapes: resizing methods differ in noise alone."""
    rng = np.random.default_rng(0)
    small = [Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)) for _ in range(3)]
    return [
        image.resize(size, Image.Resampling.BICUBIC)
        for image, size in zip(small, [(64, 48), (40, 90), (50, 50)], strict=True)
    ]


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def encoded(model: Model, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """As the pipeline encodes image files and captions."""
    tokenizer = SubwordTokenizer.from_pretrained(str(folder), for_tower=True)
    encoder: Any = model.image_encoder
    views = [full_view(decode_pixels(png(image)), encoder.image_size, encoder.view) for image in pictures()]
    tokens, lengths = pad_tokens([tokenizer.encode(text) for text in TEXTS], tokenizer.pad_id)
    with torch.no_grad():
        return model.encode_images(torch.stack(views), torch.ones(3, 1))[:, 0], model.encode_texts(tokens, lengths)


def test_embeddings_are_the_librarys_own(folder: Path) -> None:
    library, processor = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)
    padding: Any = "max_length" if library.config.model_type == "siglip" else True
    inputs = AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=padding, truncation=True, max_length=POSITIONS, return_tensors="pt"
    )
    if library.config.model_type == "siglip":
        inputs = {"input_ids": inputs["input_ids"]}  # as its own processor gives them
    pixels = processor(pictures(), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = library(**dict(inputs), pixel_values=pixels)
    images, texts = encoded(build_model(**dual_specification(folder)).eval(), folder)
    torch.testing.assert_close(texts, expected.text_embeds, atol=1e-5, rtol=1e-4)
    # The pixels may differ by a rounding of one in 255.
    assert ((images * expected.image_embeds).sum(dim=1) > 0.9999).all()
    torch.testing.assert_close(images @ texts.T, expected.image_embeds @ expected.text_embeds.T, atol=5e-3, rtol=0)


def test_vectors_of_given_pixels_are_exact(folder: Path) -> None:
    library, model = AutoModel.from_pretrained(folder).eval(), build_model(**dual_specification(folder)).eval()
    encoder: Any = model.image_encoder
    pixels = torch.randint(0, 256, (3, 3, SIDE, SIDE)).float()
    with torch.no_grad():
        expected = library.get_image_features(pixel_values=(pixels - encoder.mean) / encoder.std).pooler_output
        found = model.encode_images(pixels, torch.ones(3, 1))
    torch.testing.assert_close(found[:, 0], expected / expected.norm(dim=1, keepdim=True), atol=1e-6, rtol=1e-5)


def test_settings_for_images_are_read_in_every_layout(folder: Path, tmp_path: Path) -> None:
    """As a part of processor_config.json, alone, and as CLIP has them on the hub, from before there were processors."""
    pixels: Any = build_model(**dual_specification(folder)).image_encoder.rebuilt_by["pixels"]
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    (moved / "processor_config.json").unlink()
    AutoImageProcessor.from_pretrained(folder).save_pretrained(moved)
    assert build_model(**dual_specification(moved)).image_encoder.rebuilt_by["pixels"] == pixels
    if pixels["view"] == "crop":
        old = {"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": SIDE, "size": SIDE, "resample": 3}
        old |= {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
        (moved / "preprocessor_config.json").write_text(json.dumps(old))
        assert build_model(**dual_specification(moved)).image_encoder.rebuilt_by["pixels"] == pixels


@pytest.mark.parametrize("lora", [None, {"rank": 2, "alpha": 4.0, "dropout": 0.1}])
def test_fine_tuned_saved_and_loaded_without_the_weights(
    folder: Path, lora: dict[str, Any] | None, tmp_path: Path
) -> None:
    model = build_model(**dual_specification(folder, lora))
    before = encoded(model.eval(), folder)
    frozen = {name: tensor.clone() for name, tensor in model.state_dict().items() if "lora_" not in name}
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    # Two towers of two layers, four projections each, two matrices a projection.
    assert len(trained) == (2 * 2 * 4 * 2 if lora else len(list(model.parameters())))
    optimizer = torch.optim.AdamW([parameter for _, parameter in trained], lr=0.01)
    tokenizer = SubwordTokenizer.from_pretrained(str(folder), for_tower=True)
    tokens, lengths = pad_tokens([tokenizer.encode(text) for text in TEXTS[:3]], tokenizer.pad_id)
    pixels = torch.rand(3, 3, SIDE, SIDE) * 255
    for _ in range(2):
        optimizer.zero_grad()
        images, texts = model.train()(pixels, torch.ones(3, 1), tokens, lengths)
        torch.nn.functional.cross_entropy(images[:, 0] @ texts.T / 0.1, torch.arange(3)).backward()
        assert [name for name, parameter in trained if parameter.grad is None] == []
        optimizer.step()
    changed = [name for name, tensor in frozen.items() if not torch.equal(tensor, model.state_dict()[name])]
    assert bool(changed) == (lora is None)
    model.save(tmp_path)
    assert str(folder) not in (tmp_path / "model.json").read_text()
    loaded = load_model(tmp_path)
    assert [name for name in loaded.state_dict() if "lora_" in name or "base_layer" in name] == []
    after = encoded(loaded, folder)
    for ours, now, first in zip(encoded(model.eval(), folder), after, before, strict=True):
        # Loading merges the updates of LoRA, which rounds.
        torch.testing.assert_close(now, ours, rtol=0, atol=1e-6 if lora else 0)
        assert not torch.allclose(now, first, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("clip", {"eos_token_id": 29}),
        ("clip", {"eos_token_id": 2, "hidden_act": "gelu"}),  # OpenAI's configuration: the highest id ends a text
        ("siglip", {}),
        ("siglip2", {}),
    ],
)
def test_text_side_alone_is_transformers_own(kind: str, text: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = {"vocab_size": 30, "max_position_embeddings": 8, **sizes, **text}
    of_images = {**sizes, "image_size": SIDE, "patch_size": 8}
    network = AutoModel.from_config(AutoConfig.for_model(kind, text_config=config, vision_config=of_images))
    pixels = {"mean": [0.0] * 3, "std": [1.0] * 3, "view": "crop"}
    image = {"name": "dual_encoder", "architecture": architecture_of(network), "pixels": pixels}
    whole = build_model(None, 30, None, image, {"name": "dual_encoder"}).eval()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    whole.save(tmp_path)
    alone = load_text_side(tmp_path)
    assert alone is not None
    lengths = torch.tensor([8, 8, 8] if kind.startswith("siglip") else [8, 3, 5])
    tokens = torch.randint(3, 29, (3, 8)).scatter(1, lengths[:, None] - 1, 29)
    with torch.no_grad():
        torch.testing.assert_close(alone.encode_texts(tokens, lengths), whole.encode_texts(tokens, lengths))


def test_text_side_of_other_models_is_not_loaded_alone(folder: Path, tmp_path: Path) -> None:
    specification = dual_specification(folder, {"rank": 2, "alpha": 4.0, "dropout": 0.1})
    build_model(**specification).save(tmp_path)
    assert load_text_side(tmp_path) is None
    build_model(4, 30, 8, {"pooling": {"name": "mean"}}, {"word_dim": 4, "pooling": {"name": "mean"}}).save(tmp_path)
    assert load_text_side(tmp_path) is None


def test_what_is_no_dual_encoder_gets_one_message(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=30, **sizes)).save_pretrained(tmp_path)
    image = {"name": "dual_encoder", "weights": str(tmp_path)}
    with pytest.raises(ValueError, match="BertModel is not a dual encoder; name one"):
        build_model(None, 30, None, image, {"name": "dual_encoder"})
    with pytest.raises(ValueError, match="go together"):
        build_model(None, 30, 8, image, {"name": "bigru"})


def test_captions_of_another_tokenizer_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="100000 token ids, the text encoder knows"):
        build_model(**{**dual_specification(folder), "vocabulary_size": 100_000})
