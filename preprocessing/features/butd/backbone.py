"""ResNet-101 to its fourth stage ("C4"), as Caffe's: stride in the first 1 x 1 convolution, partial pooling windows.

B images, F channels, H x W cells. Names of the parameters are those of the released weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from preprocessing.features.butd.boxes import uploaded

Sizes = list[tuple[int, int]]


class ConvNorm(nn.Conv2d):
    """A convolution without bias, and its batch normalisation by stored statistics."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, dilation: int = 1) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(inputs, outputs, kernel, stride, padding, dilation, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)

    def forward(self, x_BFHW: Tensor) -> Tensor:
        """The normalised convolution."""
        normalised: Tensor = self.norm(super().forward(x_BFHW))
        return normalised


def fold(layer: nn.Module) -> None:
    """Multiply the normalisation of a :class:`ConvNorm` into its convolution, which then has a bias, for good."""
    if isinstance(layer, ConvNorm) and isinstance(layer.norm, nn.BatchNorm2d):
        folded = fuse_conv_bn_eval(layer, layer.norm)
        layer.weight, layer.bias, layer.norm = folded.weight, folded.bias, nn.Identity()


class Bottleneck(nn.Module):
    """A residual block (He et al., Deep Residual Learning, figure 5) of output width 4 * `width`.

    `stride` is of the first convolution and the shortcut, `dilation` of the 3 x 3 convolution; with `has_shortcut` the
    shortcut is a convolution, as in the first block of a stage.
    """

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, has_shortcut: bool) -> None:
        super().__init__()
        self.conv1 = ConvNorm(inputs, width, stride=stride)
        self.conv2 = ConvNorm(width, width, kernel=3, dilation=dilation)
        self.conv3 = ConvNorm(width, 4 * width)
        self.shortcut = ConvNorm(inputs, 4 * width, stride=stride) if has_shortcut else nn.Identity()

    def forward(self, x_BFHW: Tensor, inside: Tensor | None = None) -> Tensor:
        """The block's output; `inside` (B, 1, H, W), of the output's size, is 0 where an image is padded."""
        y_BFHW = functional.relu(self.conv1(x_BFHW), inplace=True)
        # The 3 x 3 convolution is the only one that looks across an image's border.
        y_BFHW = functional.relu(self.conv2(_cut(y_BFHW, inside)), inplace=True)
        return functional.relu(self.conv3(y_BFHW).add_(self.shortcut(x_BFHW)), inplace=True)


def stage(inputs: int, width: int, blocks: int, stride: int, dilation: int = 1) -> nn.ModuleList:
    """Residual blocks of which the first changes the size and the number of channels."""
    first = Bottleneck(inputs, width, stride, dilation, has_shortcut=True)
    others = (Bottleneck(4 * width, width, 1, dilation, has_shortcut=False) for _ in range(blocks - 1))
    return nn.ModuleList([first, *others])


class Backbone(nn.Module):
    """From pixels to the feature map of stride 16; `width` is of the first layer, `blocks` of the stages 2, 3 and 4."""

    def __init__(self, width: int, blocks: Sequence[int]) -> None:
        super().__init__()
        self.stem = nn.ModuleDict({"conv1": ConvNorm(3, width, kernel=7, stride=2)})
        self.res2 = stage(width, width, blocks[0], stride=1)
        self.res3 = stage(4 * width, 2 * width, blocks[1], stride=2)
        self.res4 = stage(8 * width, 4 * width, blocks[2], stride=2)

    def forward(self, pixels_B3HW: Tensor, sizes: Sizes) -> tuple[Tensor, Sizes]:
        """Feature maps (B, 16 * width, H, W) of images of different sizes, with the height and width of each in cells.

        Whatever lies outside of an image counts as the zeros that convolutions pad with, at every layer: so the
        features do not depend on what else is in the batch. `sizes` are heights and widths in pixels.
        """
        x = functional.relu(self.stem["conv1"](pixels_B3HW), inplace=True)
        sizes = [(_halved(height), _halved(width)) for height, width in sizes]
        inside = _inside(sizes, x)
        # After a ReLU a zero is as good as no value: it never wins a maximum.
        x = functional.max_pool2d(_cut(x, inside), kernel_size=3, stride=2, ceil_mode=True)
        # Windows of three at every second cell, of which the last may be cut to two.
        sizes = [(height // 2, width // 2) for height, width in sizes]
        x = _through(self.res2, x, sizes, stride=1)
        for blocks in (self.res3, self.res4):
            sizes = [(_halved(height), _halved(width)) for height, width in sizes]
            x = _through(blocks, x, sizes, stride=2)
        return _cut(x, _inside(sizes, x)), sizes


def _through(blocks: nn.ModuleList, x_BFHW: Tensor, sizes: Sizes, stride: int) -> Tensor:
    """The output of a stage of that stride; `sizes` are those of its images in cells of the output."""
    inside = _inside(sizes, x_BFHW[:, :, ::stride, ::stride])
    for block in blocks:
        x_BFHW = block(x_BFHW, inside)
    return x_BFHW


def _inside(sizes: Sizes, x_BFHW: Tensor) -> Tensor | None:
    """(B, 1, H, W), 1 inside of each image and 0 outside; None if no image is smaller than the map."""
    height, width = x_BFHW.shape[2:]
    if all(size == (height, width) for size in sizes):
        return None
    limits_B2 = uploaded(sizes, x_BFHW.device)
    rows_BH = torch.arange(height, device=x_BFHW.device) < limits_B2[:, :1]
    columns_BW = torch.arange(width, device=x_BFHW.device) < limits_B2[:, 1:]
    return (rows_BH[:, None, :, None] & columns_BW[:, None, None, :]).to(x_BFHW.dtype)


def _cut(x_BFHW: Tensor, inside: Tensor | None) -> Tensor:
    return x_BFHW if inside is None else x_BFHW * inside


def _halved(cells: int) -> int:
    return (cells + 1) // 2
