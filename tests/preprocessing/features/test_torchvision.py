"""CNNs of torchvision, and Caffe's ResNets, from files in the published formats."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import get_model
from torchvision.models import resnet as tv_resnet

from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import load_image
from preprocessing.features.networks import NetworkOptions
from preprocessing.features.networks.torchvision_cnn import load_torchvision
from tests.preprocessing.features.arrays import arrays

SCENES = [f"scene://0/{index}" for index in range(3)]


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """ResNets of one block a layer: the topology is that of the large ones, the time is not."""
    init = tv_resnet.ResNet.__init__

    def small(self: Any, block: Any, layers: list[int], **options: Any) -> None:
        init(self, block, [1] * len(layers), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tv_resnet.ResNet, "__init__", small)
        yield


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """A state dict as released, classifier and all, with running statistics that are not those of the start."""
    torch.manual_seed(3)
    model = get_model("resnet50", weights=None, num_classes=7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return dict(model.state_dict())


@pytest.fixture
def weights(state: dict[str, Tensor], tmp_path: Path) -> Path:
    torch.save(state, tmp_path / "resnet50.pth")
    return tmp_path / "resnet50.pth"


def test_cells_are_those_before_the_average(weights: Path) -> None:
    model = get_model("resnet50", weights=None, num_classes=7)
    model.load_state_dict(torch.load(weights, weights_only=True))
    model.eval()
    seen: list[Tensor] = []
    model.avgpool.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    extractor = build_extractor("grid", network="resnet50", weights=str(weights), image_size=128)
    features = arrays(extractor, [extractor.load(uri) for uri in SCENES])
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    for uri, found in zip(SCENES, features, strict=True):
        pixels = (np.asarray(load_image(uri)) / 255 - mean) / std  # 128 x 128 already
        with torch.no_grad():
            model(torch.from_numpy(pixels).permute(2, 0, 1)[None].float())
        expected = [seen[-1][0, :, row, column].tolist() for row in range(4) for column in range(4)]
        assert found.shape == (16, 2048)
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v3_small", "regnet_x_400mf"])
def test_every_family_ends_at_its_last_feature_map(name: str) -> None:
    seen: list[Tensor] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = get_model(name, weights=None).eval()
    model.avgpool.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network = load_torchvision(name, NetworkOptions(image_size=64, seed=5))
    pixels = network.pixels(load_image(SCENES[0]))
    with torch.no_grad():
        model(torch.from_numpy(pixels)[None])
    np.testing.assert_allclose(network.states([pixels])[0].numpy(), seen[0][0].numpy(), rtol=1e-4, atol=1e-5)


def caffe_bottleneck(x: Tensor, state: dict[str, Tensor], name: str, stride: int) -> Tensor:
    """A block of Caffe's ResNet: the stride is on the first convolution."""

    def conv(value: Tensor, number: str, step: int = 1, padding: int = 0) -> Tensor:
        return nn.functional.conv2d(value, state[f"{name}.{number}.weight"], stride=step, padding=padding)

    def norm(value: Tensor, number: str) -> Tensor:
        keys = ("running_mean", "running_var", "weight", "bias")
        return nn.functional.batch_norm(value, *(state[f"{name}.{number}.{key}"] for key in keys))

    out = norm(conv(x, "conv1", stride), "bn1").relu()
    out = norm(conv(out, "conv2", padding=1), "bn2").relu()
    out = norm(conv(out, "conv3"), "bn3")
    shortcut = norm(conv(x, "downsample.0", stride), "downsample.1") if f"{name}.downsample.0.weight" in state else x
    return (out + shortcut).relu()


def test_caffes_resnet_from_the_file_of_vse_infinity(weights: Path, tmp_path: Path) -> None:
    """Stride in the 1x1, pooling without padding that rounds up, blue first, Caffe's means, whole image."""
    state = torch.load(weights, weights_only=True)
    modules = {"conv1": "base.0", "bn1": "base.1", "layer1": "base.4", "layer2": "base.5", "layer3": "base.6"}
    parts: dict[str, dict[str, Tensor]] = {"base": {}, "top": {}}
    for name, tensor in state.items():
        module, _, rest = name.partition(".")
        if module != "fc":
            part, _, number = modules.get(module, "top.0").partition(".")
            parts[part][f"{number}.{rest}"] = tensor
    torch.save(parts, tmp_path / "original_updown_backbone.pth")
    extractor = build_extractor(
        "grid", network="resnet101_caffe", weights=str(tmp_path / "original_updown_backbone.pth"), image_size=128
    )
    (found,) = arrays(extractor, [extractor.load(SCENES[0])])
    bgr = np.asarray(load_image(SCENES[0]))[..., ::-1].astype(np.float64) - [102.9801, 115.9465, 122.7717]
    x = torch.from_numpy(bgr.copy()).permute(2, 0, 1)[None].float()
    x = nn.functional.conv2d(x, state["conv1.weight"], stride=2, padding=3)
    x = nn.functional.batch_norm(
        x, state["bn1.running_mean"], state["bn1.running_var"], state["bn1.weight"], state["bn1.bias"]
    )
    x = nn.functional.max_pool2d(x.relu(), 3, 2, padding=0, ceil_mode=True)
    for layer in (1, 2, 3, 4):
        x = caffe_bottleneck(x, state, f"layer{layer}.0", 2 if layer > 1 else 1)
    assert found.shape == (16, 2048)
    np.testing.assert_allclose(found, x[0].flatten(1).T.numpy(), rtol=1e-2, atol=1e-1)
    assert extractor.identity()["pixels"]["bgr"] is True


@pytest.mark.parametrize("form", ["safetensors", "data parallel", "without counters"])
def test_the_same_weights_in_other_files_give_the_same_network(weights: Path, tmp_path: Path, form: str) -> None:
    state = torch.load(weights, weights_only=True)
    expected = build_extractor("grid", network="resnet50", weights=str(weights), image_size=96).identity()
    other = tmp_path / ("other.safetensors" if form == "safetensors" else "other.pth")
    if form == "safetensors":
        save_file({name: tensor.clone() for name, tensor in state.items()}, other)
    elif form == "data parallel":
        torch.save({f"module.{name}": tensor for name, tensor in state.items()}, other)
    else:
        torch.save({name: tensor for name, tensor in state.items() if "num_batches" not in name}, other)
    assert build_extractor("grid", network="resnet50", weights=str(other), image_size=96).identity() == expected


@pytest.mark.parametrize(
    ("network", "change", "message"),
    [
        ("resnet50", "drop", r'Missing key.* "layer2.0.conv2.weight"'),
        ("resnet50", "add", r'Unexpected key.* "layer9.weight"'),
        ("resnet50", "shape", r"size mismatch for conv1.weight: .*64, 3, 3, 3"),
        ("resnext50_32x4d", "none", "size mismatch"),
        ("mobilenet_v3_small", "none", "Missing key.*; name the one of their training"),
        ("resnet50", "list", "hold no state dict"),
        ("resnet50", "object", "cannot be read as tensors alone .*was executed"),
        ("resnet50", "short", "cannot be read as tensors alone"),
    ],
)
def test_weights_that_do_not_fit_are_told(weights: Path, network: str, change: str, message: str) -> None:
    state: Any = torch.load(weights, weights_only=True)
    if change == "drop":
        del state["layer2.0.conv2.weight"]
    elif change == "add":
        state["layer9.weight"] = torch.zeros(1)
    elif change == "shape":
        state["conv1.weight"] = torch.zeros(64, 3, 3, 3)
    elif change == "list":
        state = [1, 2]
    elif change == "object":
        state = {"model": Path("/")}
    if change == "short":
        weights.write_bytes(weights.read_bytes()[:-1000])
    else:
        torch.save(state, weights)
    with pytest.raises(ExtractorError, match=message) as caught:
        build_extractor("grid", network=network, weights=str(weights), image_size=96)
    assert str(weights) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "resnet50", "seed": 0}, "give image_size"),
        ({"network": "resnet50", "image_size": 96}, "needs 'weights', .* or a seed"),
        ({"network": "resnet50", "image_size": 96, "weights": "w.pth", "seed": 1}, "leave out the seed"),
        ({"network": "resnet50", "image_size": 96, "weights": "/none.pth"}, "there is no file /none.pth"),
        ({"network": "resnet5", "image_size": 96, "seed": 0}, "torchvision has no network 'resnet5'; it has resnet50"),
        ({"network": "vgg11_caffe", "image_size": 96, "seed": 0}, "torchvision has no network 'vgg11_caffe'"),
        ({"network": "squeezenet1_1", "image_size": 224, "seed": 0}, "'squeezenet1_1' is not of a family"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExtractorError, match=message):
        build_extractor("grid", **options)
