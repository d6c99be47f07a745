"""Grid features against direct calls of the backbone, on small random networks and on the real MobileNetV2."""

import json
import shutil
import subprocess
import sys
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

from preprocessing.features import TINY_RESNET, ExtractorError, ImageError, build_extractor, load_image
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


def test_an_image_does_not_depend_on_its_batch() -> None:
    extractor = build_extractor("grid", weights=TINY_RESNET, seed=0)
    items = [extractor.load(uri) for uri in SCENES]
    together = arrays(extractor, items)
    for item, found in zip(items, together, strict=True):
        (alone,) = arrays(extractor, [item])
        np.testing.assert_allclose(found, alone, rtol=2e-3, atol=1e-3)
    backwards = arrays(extractor, items[::-1])[::-1]
    for found, other in zip(together, backwards, strict=True):
        np.testing.assert_array_equal(found, other)
    assert extractor([]) == []


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


def test_random_networks_are_the_same_in_another_process() -> None:
    code = (
        "import json; from preprocessing.features import TINY_RESNET, build_extractor;"
        "print(json.dumps(build_extractor('grid', weights=TINY_RESNET, seed=3).identity()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == build_extractor("grid", weights=TINY_RESNET, seed=3).identity()


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


def test_odd_images_are_image_errors(tmp_path: Path, resnet: Path) -> None:
    extractor = build_extractor("grid", weights=str(resnet))
    with pytest.raises(ImageError, match="no such file"):
        extractor.load(str(tmp_path / "gone.jpg"))
    path = tmp_path / "dot.png"
    Image.new("L", (1, 1)).save(path)
    assert extractor.load(str(path)).shape == (3, 64, 48)
    Image.new("L", (1, 60_000)).save(path)
    assert extractor.load(str(path)).shape == (3, 64, 48)


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


def corrupt(folder: Path, case: str) -> None:
    weights = folder / "model.safetensors"
    if case == "no weights":
        weights.unlink()
    elif case == "cut short":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif case == "empty weights":
        weights.write_bytes(b"")
    elif case == "no config":
        (folder / "config.json").unlink()
    elif case == "no processor":
        (folder / "preprocessor_config.json").unlink()
    elif case == "broken config":
        (folder / "config.json").write_text("{")
    elif case == "broken processor":
        (folder / "preprocessor_config.json").write_text("[1")
    elif case == "unknown model":
        (folder / "config.json").write_text('{"model_type": "vse-net"}')
    elif case == "unknown processor":
        (folder / "preprocessor_config.json").write_text('{"image_processor_type": "NoSuchProcessor"}')
    elif case == "missing parameters":
        tensors = load_file(weights)
        tensors.pop("embedder.embedder.convolution.weight")
        save_file(tensors, weights, metadata={"format": "pt"})
    elif case == "another width":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"embedding_size": 16}))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no weights", "cannot be loaded .*safetensors"),
        ("cut short", "cannot be loaded"),
        ("empty weights", "cannot be loaded"),
        ("no config", "cannot be loaded .*config.json"),
        ("no processor", "does not say how images are prepared"),
        ("broken config", "cannot be loaded"),
        ("broken processor", "cannot be loaded"),
        ("unknown model", "cannot be loaded"),
        ("unknown processor", "cannot be loaded"),
        ("missing parameters", "do not fit config.json|cannot be loaded"),
        ("another width", "do not fit config.json|cannot be loaded"),
    ],
)
def test_a_bad_folder_is_one_clear_error(resnet: Path, case: str, message: str) -> None:
    corrupt(resnet, case)
    with pytest.raises(ExtractorError, match=message) as caught:
        build_extractor("grid", weights=str(resnet))
    assert str(resnet) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_kinds_of_models_are_refused(tmp_path: Path, resnet: Path) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=20, **sizes)).save_pretrained(tmp_path / "bert")
    save_processor(tmp_path / "bert")
    with pytest.raises(ExtractorError, match="name a vision network"):
        build_extractor("grid", weights=str(tmp_path / "bert"))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    (tmp_path / "vit").mkdir()
    ViTConfig(image_size=32, patch_size=16, **sizes).save_pretrained(tmp_path / "vit")
    save_processor(tmp_path / "vit", size={"height": 32, "width": 32})
    with pytest.raises(ExtractorError, match=r"is a transformer, .* use the extractor 'patches'"):
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
        "from preprocessing.features import ExtractorError, build_extractor\n"
        "try: build_extractor('grid', weights='nobody-here/no-such-model')\n"
        "except ExtractorError as error: print(error)"
    )
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert "weights 'nobody-here/no-such-model' cannot be loaded" in done.stdout
    assert "name the folder" in done.stdout
    assert done.stdout.count("\n") == 1


def test_real_mobilenet_against_a_direct_call(vse_data: Path) -> None:
    folder = vse_data / "mobilenet_v2"
    extractor = build_extractor("grid", weights=str(folder))
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    paths = sorted((vse_data / "flickr8k" / "images").glob("*.jpg"))[:5]
    features = arrays(extractor, [extractor.load(str(path)) for path in paths])
    with torch.no_grad():
        images = [Image.open(path).convert("RGB") for path in paths]
        state = model(**processor(images=images, return_tensors="pt")).last_hidden_state
    expected = state.permute(0, 2, 3, 1).reshape(5, 49, 1280).numpy()
    assert np.stack(features).shape == (5, 49, 1280)
    np.testing.assert_allclose(np.stack(features), expected, rtol=2e-3, atol=2e-3)
    (alone,) = arrays(extractor, [extractor.load(str(paths[3]))])
    np.testing.assert_allclose(alone, features[3], rtol=2e-3, atol=2e-3)


def test_the_embedded_network_shows_colour_shape_texture_and_place() -> None:
    """Ridge regression from mean-pooled features of 1,200 scenes, area under the ROC curve on 300 unseen ones."""
    from preprocessing.datasets.scenes import compose_scene
    from preprocessing.datasets.scenes.layout import BACKGROUNDS, COLOURS, SHAPES, TEXTURES

    extractor = build_extractor("grid", weights=TINY_RESNET, seed=0)
    indices = [*range(1200), *range(10**9, 10**9 + 300)]
    uris = [f"scene://0/{index}" for index in indices]
    pooled = np.stack(
        [
            found.astype(np.float32).mean(0)
            for start in range(0, len(uris), 50)
            for found in arrays(extractor, [extractor.load(uri) for uri in uris[start : start + 50]])
        ]
    )
    scenes = [compose_scene(0, index) for index in indices]
    pooled = (pooled - pooled[:1200].mean(0)) / (pooled[:1200].std(0) + 1e-6)
    gram = pooled[:1200].T @ pooled[:1200] + 30 * np.eye(pooled.shape[1])

    def area(truth: list[bool]) -> float:
        target = np.array(truth, dtype=float)
        scores = pooled[1200:] @ np.linalg.solve(gram, pooled[:1200].T @ (target[:1200] - target[:1200].mean()))
        positive, negative = scores[target[1200:] == 1], scores[target[1200:] == 0]
        return float((positive[:, None] > negative[None, :]).mean())

    def mean_area(attribute: str, names: tuple[str, ...]) -> float:
        return float(
            np.mean([area([any(getattr(o, attribute) == n for o in s.objects) for s in scenes]) for n in names])
        )

    assert np.mean([area([s.background == name for s in scenes]) for name in BACKGROUNDS]) > 0.99
    assert mean_area("colour", COLOURS) > 0.83
    assert mean_area("shape", SHAPES) > 0.71
    assert mean_area("texture", TEXTURES) > 0.80
    assert area([any(o.colour == "red" and o.x < 50 for o in s.objects) for s in scenes]) > 0.80


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
