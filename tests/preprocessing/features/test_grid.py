"""Grid features against direct calls of the backbone, on small random networks and on the real MobileNetV2."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoImageProcessor,
    AutoModel,
    MobileNetV2ImageProcessor,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTImageProcessor,
)

from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError, load_image
from tests.custom_code import with_code_of_its_own
from tests.preprocessing.features.arrays import arrays

SCENES = [f"scene://0/{index}" for index in range(6)]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def save_processor(folder: Path, kind: Any = ViTImageProcessor, **settings: Any) -> None:
    kind(**settings).save_pretrained(folder)


@pytest.fixture
def resnet(tmp_path: Path) -> Path:
    """A small ResNet's folder as a release would have it, half precision on disk."""
    torch.manual_seed(5)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    ResNetModel(config).half().save_pretrained(tmp_path / "resnet")
    save_processor(tmp_path / "resnet", size={"height": 64, "width": 48})
    return tmp_path / "resnet"


def test_features_are_the_last_hidden_state_row_by_row(resnet: Path) -> None:
    extractor = build_extractor("grid", weights=str(resnet))
    model = AutoModel.from_pretrained(resnet, dtype=torch.float32).eval()
    processor = AutoImageProcessor.from_pretrained(resnet, backend="pil")
    features = arrays(extractor, [extractor.load(uri) for uri in SCENES])
    for uri, found in zip(SCENES, features, strict=True):
        pixels = processor(images=load_image(uri), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            state = model(pixel_values=pixels).last_hidden_state[0].numpy()
        width, height, columns = *state.shape[:2], state.shape[2]
        expected = np.array([[state[f, r, c] for f in range(width)] for r in range(height) for c in range(columns)])
        assert found.shape == (8 * 6, 12)
        assert found.dtype == np.float16
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_random_networks_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = build_extractor("grid", weights=TINY_RESNET, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    again = build_extractor("grid", weights=TINY_RESNET, seed=3)
    other = build_extractor("grid", weights=TINY_RESNET, seed=4)
    assert first.identity() == again.identity()
    assert first.identity()["weights_sha256"] != other.identity()["weights_sha256"]
    item = first.load(SCENES[0])
    np.testing.assert_array_equal(arrays(first, [item])[0], arrays(again, [item])[0])


def test_identity_tells_all_that_changes_the_output(resnet: Path, tmp_path: Path) -> None:
    identity = build_extractor("grid", weights=str(resnet)).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["backend"] == "pil"
    assert identity["processor"]["size"] == {"height": 64, "width": 48}
    shutil.copytree(resnet, tmp_path / "copy")
    assert build_extractor("grid", weights=str(tmp_path / "copy")).identity() == identity
    save_processor(tmp_path / "copy", size={"height": 64, "width": 48}, image_mean=[0.4, 0.5, 0.5])
    assert build_extractor("grid", weights=str(tmp_path / "copy")).identity() != identity
    shutil.copy(resnet / "preprocessor_config.json", tmp_path / "copy")
    weights = load_file(resnet / "model.safetensors")
    weights["embedder.embedder.convolution.weight"][0, 0, 0, 0] += 1
    save_file(weights, tmp_path / "copy" / "model.safetensors", metadata={"format": "pt"})
    assert build_extractor("grid", weights=str(tmp_path / "copy")).identity() != identity


def test_values_beyond_float16_are_told(resnet: Path) -> None:
    weights = load_file(resnet / "model.safetensors")
    weights = {name: value * 100 if "convolution" in name else value for name, value in weights.items()}
    save_file(weights, resnet / "model.safetensors", metadata={"format": "pt"})
    extractor = build_extractor("grid", weights=str(resnet))
    black = np.zeros_like(extractor.load(SCENES[0]))
    with pytest.raises(ExtractorError, match=r"image 1 of a batch of 2 has features .*range of float16"):
        arrays(extractor, [black, extractor.load(SCENES[0])])


def test_a_line_of_pixels_does_not_explode(tmp_path: Path, resnet: Path) -> None:
    crop = {"height": 64, "width": 64}
    save_processor(resnet, MobileNetV2ImageProcessor, crop_size=crop, size={"shortest_edge": 64})
    extractor = build_extractor("grid", weights=str(resnet))
    path = tmp_path / "line.png"
    Image.new("L", (60_000, 1)).save(path)
    with pytest.raises(ImageError, match="60000 x 1 pixels is too narrow"):
        extractor.load(str(path))
    Image.new("L", (400, 3)).save(path)
    assert extractor.load(str(path)).shape == (3, 64, 64)


def without_a_parameter(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("embedder.embedder.convolution.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def of_another_width(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"embedding_size": 16}))


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded .*safetensors"),
        (lambda folder: os.truncate(folder / "model.safetensors", 900), "cannot be loaded"),
        (lambda folder: (folder / "config.json").unlink(), "cannot be loaded .*config.json"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "does not say how images are prepared"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "vse-net"}'), "cannot be loaded"),
        (without_a_parameter, "do not fit config.json|cannot be loaded"),
        (of_another_width, "do not fit config.json|cannot be loaded"),
    ],
)
def test_a_bad_folder_is_one_clear_error(resnet: Path, corrupt: Callable[[Path], object], message: str) -> None:
    corrupt(resnet)
    with pytest.raises(ExtractorError, match=message) as caught:
        build_extractor("grid", weights=str(resnet))
    assert str(resnet) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_transformer_is_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    (tmp_path / "vit").mkdir()
    ViTConfig(image_size=32, patch_size=16, **sizes).save_pretrained(tmp_path / "vit")
    save_processor(tmp_path / "vit", size={"height": 32, "width": 32})
    with pytest.raises(ExtractorError, match=r"is a transformer .* use the extractor 'patches'"):
        build_extractor("grid", weights=str(tmp_path / "vit"), seed=0)


def test_images_of_one_batch_may_differ_in_size(resnet: Path, tmp_path: Path) -> None:
    save_processor(resnet, MobileNetV2ImageProcessor, do_center_crop=False, size={"shortest_edge": 64})
    extractor = build_extractor("grid", weights=str(resnet))
    uris = []
    for number, size in enumerate([(96, 64), (64, 64), (64, 128), (48, 32)]):
        uris.append(str(tmp_path / f"{number}.png"))
        load_image(SCENES[number]).resize(size).save(uris[-1])
    items = [extractor.load(uri) for uri in uris]
    together = arrays(extractor, items)
    assert [len(found) for found in together] == [8 * 12, 8 * 8, 16 * 8, 8 * 12]
    for item, found in zip(items, together, strict=True):
        np.testing.assert_allclose(found, arrays(extractor, [item])[0], rtol=2e-3, atol=2e-4)


def test_a_size_of_ones_own_takes_the_place_of_the_processors(resnet: Path) -> None:
    """The whole image as a square, with the processor's mean and deviation."""
    extractor = build_extractor("grid", weights=str(resnet), image_size=80)
    settings = json.loads((resnet / "preprocessor_config.json").read_text())
    pixels = extractor.load(SCENES[0])
    image = load_image(SCENES[0])
    assert image.size == (128, 128)
    red = np.asarray(image, dtype=np.float64)[..., 0]
    # 128 to 80 pixels: the centre of target pixel 10 lies at 1.6 * 10.5 - 0.5 = 16.3 in the source.
    mixed = (red[16:18, 16:18] * np.outer([0.7, 0.3], [0.7, 0.3])).sum()
    assert pixels.shape == (3, 80, 80)
    expected = (mixed / 255 - settings["image_mean"][0]) / settings["image_std"][0]
    np.testing.assert_allclose(pixels[0, 10, 10], expected, rtol=1e-4)
    plain = build_extractor("grid", weights=str(resnet)).identity()
    assert extractor.identity() == {**plain, "image_size": 80}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "/no/such/folder"}, "there is no folder /no/such/folder; name one that holds config.json"),
        ({"weights": "models/deep/folder"}, "there is no folder"),
        ({"weights": "./here"}, "there is no folder"),
        ({"weights": "owner/name", "seed": 1}, "a seed needs a folder"),
        ({"weights": TINY_RESNET}, "cannot be loaded .*safetensors weights .for random ones give a seed."),
        ({"weights": TINY_RESNET, "seed": 0, "device": "tpu9"}, "device 'tpu9' cannot be used"),
        ({"weights": TINY_RESNET, "seed": 0, "device": "cuda:99"}, "device 'cuda:99' cannot be used"),
        ({}, "'weights' is missing: name a folder or hub id"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExtractorError, match=message):
        build_extractor("grid", **options)


def test_a_seed_for_weights_that_are_there_is_refused(resnet: Path) -> None:
    with pytest.raises(ExtractorError, match="holds weights, and a seed was given"):
        build_extractor("grid", weights=str(resnet), seed=0)


def test_a_hub_that_cannot_be_reached_is_one_clear_error() -> None:
    """In a process of its own: the hub's library reads its settings once, when it is imported."""
    code = (
        "from preprocessing.features.extractor import ExtractorError\n"
        "from preprocessing.features import build_extractor\n"
        "try: build_extractor('grid', weights='nobody-here/no-such-model')\n"
        "except ExtractorError as error: print(error)"
    )
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert "weights 'nobody-here/no-such-model' cannot be loaded" in done.stdout
    assert "name a folder" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("model_type", ["resnet", "custom"])
def test_code_in_a_folder_of_weights_is_refused_without_a_question(
    resnet: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked whether to run the code"))
    with_code_of_its_own(resnet, model_type)
    with pytest.raises(ExtractorError, match=r"cannot be loaded .*(code of its own|custom code)") as caught:
        build_extractor("grid", weights=str(resnet))
    assert "\n" not in str(caught.value)
    assert not (resnet / "ran").exists()
