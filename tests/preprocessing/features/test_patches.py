"""Patches of vision transformers, against direct calls of small random models of each kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    ResNetConfig,
    ViTConfig,
    ViTImageProcessor,
    ViTMAEConfig,
    ViTMAEModel,
    ViTModel,
)

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.grid import patch_grid
from tests.preprocessing.features.arrays import arrays

SCENES = [f"scene://0/{index}" for index in range(3)]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 48,
    "patch_size": 16,
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


def saved(model: Any, folder: Path, size: int = 48, width: int = 0) -> Path:
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": size, "width": width or size}).save_pretrained(folder)
    return folder


def tokens(model: Any, extractor: Any) -> Any:
    """Return the model's output for each scene alone."""
    with torch.no_grad():
        return [
            model.eval()(pixel_values=torch.from_numpy(extractor.load(uri))[None]).last_hidden_state[0].numpy()
            for uri in SCENES
        ]


def test_a_vit_with_and_without_its_class_token(tmp_path: Path) -> None:
    model = ViTModel(ViTConfig(**SIZES), add_pooling_layer=False)
    folder = saved(model, tmp_path)
    for class_token, rows in ((True, slice(0, None)), (False, slice(1, None))):
        extractor = build_extractor("patches", weights=str(folder), class_token=class_token)
        found = arrays(extractor, [extractor.load(uri) for uri in SCENES])
        for features, expected in zip(found, tokens(model, extractor), strict=True):
            assert features.shape == (9 + class_token, 16)
            assert features.dtype == np.float16
            np.testing.assert_allclose(features, expected[rows], rtol=2e-3, atol=2e-3)
    assert extractor.name == "patches"
    # The checkpoint has no pooling head; the one that is made up does not reach the features, nor the identity.
    assert build_extractor("patches", weights=str(folder), class_token=False).identity() == extractor.identity()
    assert build_extractor("patches", weights=str(folder)).identity() != extractor.identity()


def test_patches_lie_on_the_grid_of_the_pixels(tmp_path: Path) -> None:
    """Three of 3 x 6 patches were taken for class tokens, as 16 is the largest square."""
    model = ViTModel(ViTConfig(**SIZES | {"image_size": (48, 96)}), add_pooling_layer=False)
    folder = saved(model, tmp_path, 48, 96)
    for class_token in (True, False):
        extractor = build_extractor("patches", weights=str(folder), class_token=class_token)
        (found, *_) = extractor([extractor.load(uri) for uri in SCENES])
        assert found.grid == (3, 6, int(class_token))
        expected = tokens(model, extractor)[0][int(not class_token) :]
        np.testing.assert_allclose(found.features, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("tokens", "pixels", "grid"),
    [
        (197, (224, 224), (14, 14)),
        (1 + 4 + 37 * 37, (518, 518), (37, 37)),
        (50, (224, 224), (7, 7)),
        (1 + 14 * 28, (224, 448), (14, 28)),
        (1 + 45 * 30, (720, 480), (45, 30)),
    ],
)
def test_the_grid_of_a_transformers_tokens(tokens: int, pixels: tuple[int, int], grid: tuple[int, int]) -> None:
    assert patch_grid(tokens, *pixels) == grid


def test_a_cnn_is_refused(tmp_path: Path) -> None:
    ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic").save_pretrained(tmp_path)
    ViTImageProcessor().save_pretrained(tmp_path)
    with pytest.raises(ExtractorError, match=r"is a CNN, .* use the extractor 'grid'"):
        build_extractor("patches", weights=str(tmp_path), seed=0)


def test_a_network_whose_features_are_random_is_refused(tmp_path: Path) -> None:
    """ViTMAE keeps a quarter of the patches, drawn at each call; with a mask ratio of 0 it only shuffles them."""
    for ratio in (0.75, 0.0):
        config = ViTMAEConfig(**SIZES | {"image_size": 96}, mask_ratio=ratio, decoder_num_hidden_layers=1)
        folder = saved(ViTMAEModel(config), tmp_path / str(ratio), 96)
        with pytest.raises(ExtractorError, match="two passes over one image give different features"):
            build_extractor("patches", weights=str(folder))
