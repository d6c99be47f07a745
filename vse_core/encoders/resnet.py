"""ResNets as grid networks, in torchvision's topology and in Caffe's, and their names in released checkpoints."""

from collections.abc import Mapping

from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import Bottleneck

_CAFFE = "_caffe"
# Blocks of the four layers, groups, width of a group.
TOPOLOGIES = {
    "resnet50": ((3, 4, 6, 3), 1, 64),
    "resnet101": ((3, 4, 23, 3), 1, 64),
    "resnet152": ((3, 8, 36, 3), 1, 64),
    "resnext101_32x8d": ((3, 4, 23, 3), 32, 8),
}
TOPOLOGIES |= {f"resnet{depth}{_CAFFE}": TOPOLOGIES[f"resnet{depth}"] for depth in (50, 101, 152)}
RESNETS = tuple(TOPOLOGIES)

# Modules of the released VSE-infinity files and what they are here; a Caffe topology is the last of equal sizes.
RELEASED_MODULES = {
    "base.0": "conv1",
    "base.1": "bn1",
    "base.4": "layer1",
    "base.5": "layer2",
    "base.6": "layer3",
    "top.0": "layer4",
}


class GridResNet(ResNet):
    """A bottleneck ResNet up to its last feature map: pixels (B, 3, H, W) to cells (B, 2048, H/32, W/32).

    Names ending in `_caffe` are the original Caffe topology, in which bottom-up attention's detector and all released
    VSE-infinity grid models but the WSL ones were trained: the stride of a layer's first block sits on its first 1x1
    convolution instead of the 3x3 one, and the max pooling has no padding and rounds its output size up. Parameters
    have the same names and shapes in both, so weights of the one load into the other; the features then differ.

    State-dict names are torchvision's without `fc`: `conv1 bn1 layer1 layer2 layer3 layer4` (see `RELEASED_MODULES`).
    The names are `RESNETS`; ResNeXt-101 32x8d is the network of the WSL weights.
    """

    def __init__(self, name: str) -> None:
        if name not in TOPOLOGIES:
            raise ValueError(f"there is no ResNet {name!r}; there are {', '.join(RESNETS)}")
        blocks, groups, width = TOPOLOGIES[name]
        super().__init__(Bottleneck, list(blocks), groups=groups, width_per_group=width)
        del self.avgpool, self.fc
        if name.endswith(_CAFFE):
            self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=0, ceil_mode=True)
            for layer in (self.layer2, self.layer3, self.layer4):
                layer[0].conv1.stride, layer[0].conv2.stride = layer[0].conv2.stride, layer[0].conv1.stride

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        """Map normalised pixels (B, 3, H, W) to the last feature map, (B, 2048, ceil(H / 32), ceil(W / 32))."""
        hidden = self.maxpool(self.relu(self.bn1(self.conv1(pixels_BCHW))))
        cells_BFHW: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        return cells_BFHW


def from_released(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename a released state dict (`base.*` and `top.*`) to the names of `GridResNet`; other names stay."""
    modules = {name: ".".join(name.split(".")[:2]) for name in state}
    return {RELEASED_MODULES.get(part, part) + name.removeprefix(part): state[name] for name, part in modules.items()}
