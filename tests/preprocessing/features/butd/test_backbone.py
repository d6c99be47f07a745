"""The backbone: sizes, strides, and that an image's map does not depend on its batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from preprocessing.features.butd.backbone import Backbone, Bottleneck, fold


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """With statistics that a normalisation layer cannot do without unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for values in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
                values.data.uniform_(0.2, 1.2, generator=generator)
    return module.eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("height", "width", "cells"),
    [(600, 800, (38, 50)), (600, 901, (38, 57)), (562, 1000, (35, 63)), (600, 600, (38, 38)), (16, 1000, (1, 63))],
)
def test_a_cell_is_sixteen_pixels_and_partial_cells_count(height: int, width: int, cells: tuple[int, int]) -> None:
    with torch.device("meta"):
        backbone = Backbone(64, (1, 1, 1))
        maps, sizes = backbone(torch.empty(1, 3, height, width), [(height, width)])
    assert tuple(maps.shape) == (1, 1024, *cells)
    assert sizes == [cells]
    # A 7 x 7 and two 1 x 1 convolutions of stride 2, and between them windows of 3 of which the last may be cut.
    expected = []
    for side in (height, width):
        side = (side + 6 - 7) // 2 + 1
        side = math.ceil((side - 3) / 2) + 1
        for _ in range(2):
            side = (side - 1) // 2 + 1
        expected.append(side)
    assert tuple(expected) == cells


def test_the_block_of_the_paper() -> None:
    """Oracle: the block written out; the stride is in the first convolution, the dilation in the second."""
    block = randomised(Bottleneck(6, 4, stride=2, dilation=2, has_shortcut=True))
    x = torch.rand(2, 6, 9, 7, generator=torch.Generator().manual_seed(1))

    def conv_norm(layer: Any, x: Tensor, **how: Any) -> Tensor:
        y, norm, shape = nn.functional.conv2d(x, layer.weight, **how), layer.norm, (1, -1, 1, 1)
        y = (y - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + 1e-5).sqrt()
        normalised: Tensor = y * norm.weight.view(shape) + norm.bias.view(shape)
        return normalised

    y = conv_norm(block.conv1, x, stride=2).relu()
    y = conv_norm(block.conv2, y, padding=2, dilation=2).relu()
    expected = (conv_norm(block.conv3, y) + conv_norm(block.shortcut, x, stride=2)).relu()
    torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(block.apply(fold)(x), expected, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in block.modules())


def test_an_image_does_not_depend_on_its_batch() -> None:
    backbone = randomised(Backbone(2, (1, 2, 1)))
    sizes = [(64, 96), (81, 47), (50, 70), (96, 96)]
    rng = np.random.default_rng(0)
    images = [torch.tensor(rng.uniform(-120, 130, (3, *size)), dtype=torch.float32) for size in sizes]
    batch = torch.zeros(4, 3, 96, 96)
    for row, image in zip(batch, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    maps, cells = backbone(batch, sizes)
    for image, size, found, (height, width) in zip(images, sizes, maps, cells, strict=True):
        (alone,), (alone_cells,) = backbone(image[None], [size])
        assert (height, width) == alone_cells == tuple(alone.shape[1:])
        torch.testing.assert_close(found[:, :height, :width], alone, rtol=1e-4, atol=1e-4)
        assert not found[:, height:].any()
        assert not found[:, :, width:].any()
