"""The heads' outputs for a region, against loops over its cells."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from preprocessing.features.butd.detector import Predictor, RegionHeads


def slowly_pooled(values: np.ndarray, box: list[float]) -> np.ndarray:
    """Bin by bin: corners rounded to cells (halves up), 14 x 14 bins of whole cells, their maximum, 0 where empty."""
    channels, height, width = values.shape
    x1, y1, x2, y2 = (math.floor(corner / 16 + 0.5) for corner in box)
    across, down = np.float32(max(x2 - x1 + 1, 1)) / np.float32(14), np.float32(max(y2 - y1 + 1, 1)) / np.float32(14)
    pooled = np.zeros((channels, 14, 14), np.float32)
    for row, column in np.ndindex(14, 14):
        top, bottom = (y1 + math.floor(np.float32(row) * down), y1 + math.ceil(np.float32(row + 1) * down))
        left, right = (x1 + math.floor(np.float32(column) * across), x1 + math.ceil(np.float32(column + 1) * across))
        cells = values[:, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
        if cells.size:
            pooled[:, row, column] = cells.max(axis=(1, 2))
    return pooled


class AsPooled(nn.Module):
    """Stands in for the last stage's blocks, whose parameters tell the type to compute in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 1, 1)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return x


def test_regions_are_pooled() -> None:
    values = np.random.default_rng(0).uniform(0, 1, (3, 20, 30)).astype(np.float32)
    boxes = [
        [0.0, 0.0, 479.0, 319.0],
        [8.0, 24.0, 40.0, 56.0],  # corners half way between cells
        [100.0, 50.0, 101.0, 51.0],  # within a cell
        [33.3, 20.0, 250.0, 300.0],
        [300.0, 100.0, 480.0, 320.0],  # to the border of an image without its edge
    ]
    heads = RegionHeads(width=1, objects=2, attributes=2)
    spy = AsPooled()
    heads.res5 = nn.ModuleList([spy])
    maps = torch.from_numpy(np.stack([values[::-1], values]))
    features = heads(maps, torch.tensor([boxes, boxes]), [2, 5])
    taken = [(values[::-1], box) for box in boxes[:2]] + [(values, box) for box in boxes]
    expected = np.array([slowly_pooled(image, box) for image, box in taken])
    np.testing.assert_array_equal(spy.seen[0].numpy(), expected)
    found = torch.cat([features[0, :2], features[1]])
    np.testing.assert_allclose(found.numpy(), expected.mean(axis=(2, 3)), rtol=1e-5)
    assert not features[0, 2:].any()


def test_many_regions_are_computed_in_parts() -> None:
    heads = RegionHeads(width=1, objects=2, attributes=2)
    spy = AsPooled()
    heads.res5 = nn.ModuleList([spy])
    values = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0))
    corners = torch.rand(230, 2, generator=torch.Generator().manual_seed(1)) * 60
    boxes = torch.cat([corners, corners + 50], dim=1)
    (features,) = heads(values[None], boxes[None], [230])
    assert [len(part) for part in spy.seen] == [100, 100, 30]
    torch.testing.assert_close(features[150:160], heads(values[None], boxes[None, 150:160], [10])[0])


def test_the_predictor_by_hand() -> None:
    torch.manual_seed(0)
    predictor = Predictor(features=16, objects=3, attributes=2).requires_grad_(False)
    features = torch.rand(5, 16)
    objects = predictor.cls_score(features)
    torch.testing.assert_close(objects, features @ predictor.cls_score.weight.T + predictor.cls_score.bias)
    objects[0, 3] = 99.0  # "none" has an embedding, too
    embedded = predictor.cls_embedding.weight[objects.argmax(1)]
    hidden = torch.cat([features, embedded], 1) @ predictor.fc_attr.weight.T + predictor.fc_attr.bias
    expected = hidden.clamp(min=0) @ predictor.attr_score.weight.T + predictor.attr_score.bias
    torch.testing.assert_close(predictor.attributes(features, objects), expected)
