"""Features of every kind of network are those of the library that it comes from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModel,
    BertConfig,
    TimmWrapperConfig,
)

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError, load_image
from tests.vision_networks import DUAL, MAPS, PATCHES, TIMM_MAPS, TIMM_PATCHES, TIMM_REGISTERS, write_vision_network

SCENES = ("scene://0/0", "scene://0/1")


def stored(name: str, folder: Path, **options: object) -> np.ndarray:
    extractor = build_extractor(name, weights=str(folder), **options)
    return np.stack([each.features for each in extractor([extractor.load(uri) for uri in SCENES])])


def states(extractor: Any) -> np.ndarray:
    """The network's states of the scenes, as they are before they are stored."""
    return torch.stack(extractor._network.states([extractor.load(uri) for uri in SCENES])).numpy()


@torch.inference_mode()
def of_timm(name: str, folder: Path) -> torch.Tensor:
    """The network's own features of the scenes, by timm alone."""
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model), is_training=False)
    state = model.forward_features(torch.stack([transform(load_image(uri)) for uri in SCENES]))
    if name in TIMM_PATCHES | TIMM_REGISTERS:
        return state
    return state.flatten(1, 2) if name.startswith("swin") else state.flatten(2).transpose(1, 2)


@torch.inference_mode()
def of_transformers(name: str, folder: Path) -> torch.Tensor:
    """The network's own features of the scenes, by transformers alone."""
    images = [load_image(uri) for uri in SCENES]
    pixels = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")["pixel_values"]
    state = AutoModel.from_pretrained(folder).eval()(pixels).last_hidden_state
    return state.flatten(2).transpose(1, 2) if name == "resnet" else state


@pytest.mark.parametrize("name", [*PATCHES, *MAPS, *TIMM_PATCHES, *TIMM_MAPS])
def test_features_are_those_of_the_library(tmp_path: Path, name: str) -> None:
    folder = write_vision_network(tmp_path / name, name)
    expected = (of_timm if name in TIMM_PATCHES | TIMM_MAPS else of_transformers)(name, folder).numpy()
    if name == "dinov2_registers":
        expected = expected[:, [0, *range(5, expected.shape[1])]]
    kind = "grid" if name in MAPS | TIMM_MAPS else "patches"
    options = {"class_token": False} if name == "swin" else {}
    extractor = build_extractor(kind, weights=str(folder), **options)
    found = np.stack([extractor.vectors(torch.from_numpy(state)).numpy() for state in states(extractor)])
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max(), rtol=1e-6)
    np.testing.assert_array_equal(stored(kind, folder, **options), found.astype(np.float16))


@pytest.mark.parametrize("name", DUAL)
def test_the_vision_tower_of_a_whole_dual_encoder(tmp_path: Path, name: str) -> None:
    folder = write_vision_network(tmp_path, name)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = processor(images=[load_image(uri) for uri in SCENES], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = AutoModel.from_pretrained(folder).eval().vision_model(pixel_values=pixels).last_hidden_state.numpy()
    has_class_token = name not in ("siglip", "aimv2")
    extractor = build_extractor("patches", weights=str(folder), class_token=has_class_token)
    assert extractor([extractor.load(SCENES[0])])[0].grid == (4, 4, int(has_class_token))
    np.testing.assert_allclose(states(extractor), expected, atol=1e-6, rtol=1e-6)


def test_registers_are_no_class_token(tmp_path: Path) -> None:
    name = next(iter(TIMM_REGISTERS))
    folder = write_vision_network(tmp_path, name)
    with pytest.raises(ExtractorError, match="16 tokens, all of them patches; set class_token to false"):
        build_extractor("patches", weights=str(folder))
    extractor = build_extractor("patches", weights=str(folder), class_token=False)
    np.testing.assert_allclose(states(extractor), of_timm(name, folder)[:, 4:], atol=1e-6, rtol=1e-6)


def test_a_line_of_pixels_does_not_explode_in_timm(tmp_path: Path) -> None:
    extractor = build_extractor("grid", weights=str(write_vision_network(tmp_path, "test_efficientnet")))
    with pytest.raises(ImageError, match="60000 x 1 pixels is too narrow"):
        extractor.prepare(b"", Image.new("RGB", (60_000, 1)))
    assert extractor.prepare(b"", Image.new("RGB", (400, 3))).shape == (3, 64, 64)


def test_a_wrapper_of_timm_without_settings_for_images_says_so(tmp_path: Path) -> None:
    AutoModel.from_config(TimmWrapperConfig(architecture="test_efficientnet")).save_pretrained(tmp_path)
    with pytest.raises(ExtractorError, match="does not say how images are prepared"):
        build_extractor("grid", weights=str(tmp_path))


def test_a_text_network_is_refused_in_one_message(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    AutoModel.from_config(BertConfig(vocab_size=11, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ExtractorError, match="bert reads input_ids, no images; name a vision network"):
        build_extractor("patches", weights=str(tmp_path))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
@pytest.mark.parametrize("name", ["vit", "test_efficientnet"])
def test_half_precision_is_near_and_another_identity(tmp_path: Path, name: str, dtype: str, tolerance: float) -> None:
    folder = write_vision_network(tmp_path, name)
    kind = "patches" if name == "vit" else "grid"
    full, half = stored(kind, folder).astype(np.float32), stored(kind, folder, dtype=dtype).astype(np.float32)
    assert not np.array_equal(full, half)
    assert np.abs(full - half).max() <= tolerance * np.abs(full).max()
    plain = build_extractor(kind, weights=str(folder)).identity()
    assert build_extractor(kind, weights=str(folder), dtype=dtype).identity() == {**plain, "dtype": dtype}


def test_timm_at_another_size_has_its_normalisation(tmp_path: Path) -> None:
    folder = write_vision_network(tmp_path, "test_efficientnet")
    extractor = build_extractor("grid", weights=str(folder), image_size=96)
    grey = extractor.prepare(b"", Image.new("RGB", (50, 40), (124, 116, 104)))
    assert grey.shape == (3, 96, 96)
    assert np.abs(grey).max() < 0.02
