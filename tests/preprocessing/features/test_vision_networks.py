"""Features of every kind of network are those of the library that it comes from."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, BertConfig, RTDetrResNetBackbone

from preprocessing.features import ExtractorError, build_extractor, load_image
from tests.dual_encoders import write_dual_encoder
from tests.vision_networks import MAPS, PATCHES, TIMM_MAPS, TIMM_PATCHES, write_vision_network

SCENES = ("scene://0/0", "scene://0/1")


def stored(name: str, folder: Path, **options: object) -> np.ndarray:
    extractor = build_extractor(name, weights=str(folder), **options)
    return np.stack([each.features for each in extractor([extractor.load(uri) for uri in SCENES])])


@torch.inference_mode()
def of_timm(name: str, folder: Path) -> torch.Tensor:
    """The network's own features of the scenes, by timm alone."""
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model), is_training=False)
    state = model.forward_features(torch.stack([transform(load_image(uri)) for uri in SCENES]))
    if name in TIMM_PATCHES:
        return state
    return state.flatten(1, 2) if name.startswith("swin") else state.flatten(2).transpose(1, 2)


@torch.inference_mode()
def of_transformers(name: str, folder: Path) -> torch.Tensor:
    """The network's own features of the scenes, by transformers alone."""
    network = RTDetrResNetBackbone if name == "rt_detr_resnet" else AutoModel
    images = [load_image(uri) for uri in SCENES]
    pixels = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")["pixel_values"]
    output = network.from_pretrained(folder).eval()(pixels)
    if name == "rt_detr_resnet":
        return output.feature_maps[-1].flatten(2).transpose(1, 2)
    state = output.last_hidden_state
    return state.flatten(2).transpose(1, 2) if name == "resnet" else state


@pytest.mark.parametrize("name", [*PATCHES, *MAPS, *TIMM_PATCHES, *TIMM_MAPS])
def test_features_are_those_of_the_library(tmp_path: Path, name: str) -> None:
    folder = write_vision_network(tmp_path / name, name)
    expected = (of_timm if name in TIMM_PATCHES | TIMM_MAPS else of_transformers)(name, folder).numpy()
    if name in MAPS | TIMM_MAPS:
        found = stored("grid", folder)
    elif name == "swin":
        found = stored("patches", folder, class_token=False)
    else:
        found = stored("patches", folder)
    if name == "dinov2_registers":
        expected = expected[:, [0, *range(5, expected.shape[1])]]
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max(), rtol=2e-3)


@pytest.mark.parametrize("model_type", ["clip", "siglip"])
def test_the_vision_tower_of_a_whole_dual_encoder(tmp_path: Path, model_type: str) -> None:
    folder = write_dual_encoder(tmp_path, model_type, ["a red ring", "two squares"])
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = processor(images=[load_image(uri) for uri in SCENES], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = AutoModel.from_pretrained(folder).vision_model(pixel_values=pixels).last_hidden_state.numpy()
    found = stored("patches", folder, class_token=model_type == "clip")
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max(), rtol=2e-3)


def test_a_text_network_is_refused_in_one_message(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    AutoModel.from_config(BertConfig(vocab_size=11, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ExtractorError, match="type bert, which reads input_ids, no images; name a vision network"):
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
    grey = extractor.pixels(Image.new("RGB", (50, 40), (124, 116, 104)))
    assert grey.shape == (3, 96, 96)
    assert np.abs(grey).max() < 0.02
