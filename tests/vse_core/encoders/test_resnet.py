"""ResNets against torchvision and against Caffe's topology, written out layer by layer from its definition."""

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d, pad, relu

from vse_core.encoders.resnet import RELEASED_MODULES, RESNETS, GridResNet, from_released

BLOCKS = {"layer1": 3, "layer2": 4, "layer3": 23, "layer4": 3}


def randomised(network: nn.Module) -> nn.Module:
    """With batch-norm statistics that a wrong layer would show in, and activations that stay of order one."""
    torch.manual_seed(0)
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.constant_(module.weight, 0.2 if name.endswith("bn3") else 1.0)
            nn.init.normal_(module.bias, 0, 0.1)
    return network.eval()


def caffe_resnet101(state: dict[str, Tensor], pixels: Tensor) -> Tensor:
    """The definition in the Caffe model: the stride on the first 1 x 1 convolution, pooling without padding, ceiled."""

    def norm(x: Tensor, name: str) -> Tensor:
        statistics = (state[f"{name}.running_mean"], state[f"{name}.running_var"])
        return batch_norm(x, *statistics, state[f"{name}.weight"], state[f"{name}.bias"])

    x = relu(norm(conv2d(pixels, state["conv1.weight"], stride=2, padding=3), "bn1"))
    # Rounding up means that a last window may hang over the edge: -inf there is never the largest.
    overhang = [(2 - (size - 3) % 2) % 2 for size in x.shape[2:]]
    x = max_pool2d(pad(x, (0, overhang[1], 0, overhang[0]), value=-torch.inf), 3, 2)
    for layer, count in BLOCKS.items():
        for block in range(count):
            name = f"{layer}.{block}"
            stride = 2 if block == 0 and layer != "layer1" else 1
            branch = relu(norm(conv2d(x, state[f"{name}.conv1.weight"], stride=stride), f"{name}.bn1"))
            branch = relu(norm(conv2d(branch, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2"))
            branch = norm(conv2d(branch, state[f"{name}.conv3.weight"]), f"{name}.bn3")
            if block == 0:
                x = norm(conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride), f"{name}.downsample.1")
            x = relu(x + branch)
    return x


@pytest.fixture(scope="module")
def caffe() -> nn.Module:
    return randomised(GridResNet("resnet101_caffe"))


@pytest.mark.parametrize("size", [(64, 96), (70, 61)])
def test_caffe_topology_layer_by_layer(caffe: nn.Module, size: tuple[int, int]) -> None:
    pixels = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found, expected = caffe(pixels), caffe_resnet101(caffe.state_dict(), pixels)
    assert expected.abs().mean() > 0.05  # or there would be nothing to compare
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_512_pixels_give_256_cells(caffe: nn.Module) -> None:
    with torch.inference_mode(), torch.device("meta"):
        network = GridResNet("resnet101_caffe")
        assert network(torch.empty(1, 3, 512, 512)).shape == (1, 2048, 16, 16)
        assert network(torch.empty(1, 3, 256, 256)).shape == (1, 2048, 8, 8)


def test_the_stride_sits_on_the_first_convolution(caffe: nn.Module) -> None:
    for name, strides in (("resnet101_caffe", (2, 1)), ("resnet101", (1, 2))):
        with torch.device("meta"):
            network = GridResNet(name)
        for layer in (network.layer2, network.layer3, network.layer4):
            assert (layer[0].conv1.stride[0], layer[0].conv2.stride[0]) == strides
            assert all(block.conv1.stride == block.conv2.stride == (1, 1) for block in layer[1:])


@pytest.mark.parametrize("name", [name for name in RESNETS if not name.endswith("_caffe")])
def test_torchvision_topologies_hold_torchvisions_parameters(name: str) -> None:
    with torch.device("meta"):
        ours, theirs = GridResNet(name), torchvision.models.get_model(name)
    shapes = {key: value.shape for key, value in theirs.state_dict().items() if not key.startswith("fc.")}
    assert {key: value.shape for key, value in ours.state_dict().items()} == shapes


def test_torchvision_topology_gives_torchvisions_features() -> None:
    ours = randomised(GridResNet("resnet50"))
    theirs = torchvision.models.resnet50()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    pixels = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(ours(pixels).mean(dim=(2, 3)), theirs.eval()(pixels))


def test_released_names(caffe: nn.Module) -> None:
    base = nn.Sequential(caffe.conv1, caffe.bn1, caffe.relu, caffe.maxpool, caffe.layer1, caffe.layer2, caffe.layer3)
    released = {f"base.{name}": tensor for name, tensor in base.state_dict().items()}
    released |= {f"top.{name}": tensor for name, tensor in nn.Sequential(caffe.layer4).state_dict().items()}
    assert {".".join(name.split(".")[:2]) for name in released} == set(RELEASED_MODULES)
    renamed = from_released(released)
    assert renamed.keys() == caffe.state_dict().keys()
    assert all(torch.equal(renamed[name], tensor) for name, tensor in caffe.state_dict().items())


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="resnet101_caffe"):
        GridResNet("resnet18")
