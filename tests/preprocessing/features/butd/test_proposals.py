"""Anchors against the published ones; proposals against going through the boxes one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from preprocessing.features.butd.proposals import (
    ProposalHead,
    anchors_at_cells,
    caffe_anchors,
    detectron2_anchors,
    order_of,
    propose,
)

PUBLISHED = [
    (-38, -16, 53, 31),
    (-84, -40, 99, 55),
    (-176, -88, 191, 103),
    (-360, -184, 375, 199),
    (-24, -24, 39, 39),
    (-56, -56, 71, 71),
    (-120, -120, 135, 135),
    (-248, -248, 263, 263),
    (-14, -36, 29, 51),
    (-36, -80, 51, 95),
    (-80, -168, 95, 183),
    (-168, -344, 183, 359),
]


def test_the_twelve_of_the_caffe_model() -> None:
    assert caffe_anchors().tolist() == [list(map(float, box)) for box in PUBLISHED]


def test_anchors_stand_at_every_cell() -> None:
    found = anchors_at_cells(caffe_anchors(), height=2, width=3).tolist()
    expected = [
        [x1 + 16 * column, y1 + 16 * row, x2 + 16 * column, y2 + 16 * row]
        for row in range(2)
        for column in range(3)
        for x1, y1, x2, y2 in PUBLISHED
    ]
    assert found == expected


@pytest.mark.parametrize("anchors", [caffe_anchors(), caffe_anchors() + 1, detectron2_anchors()])
def test_any_order_is_recognised(anchors: torch.Tensor) -> None:
    shuffled = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(anchors[shuffled][order_of(anchors[shuffled])], anchors)


@pytest.mark.parametrize(
    ("anchors", "reason"),
    [
        (torch.zeros(15, 4), r"shape \(15, 4\), not \(12, 4\)"),
        (torch.zeros(12, 4), "not of the ratios"),
        (caffe_anchors() * 3, "not of the ratios"),
        (caffe_anchors()[[0, *range(11)]], "not of the ratios"),
    ],
)
def test_anchors_of_another_model(anchors: torch.Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        order_of(anchors)


HEIGHT, WIDTH = 5, 6
SIZE = (75, 90)


def overlap(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0]) + 1
    height = min(one[3], other[3]) - max(one[1], other[1]) + 1
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (one, other)]
    return shared / (sum(areas) - shared)


def slowly_proposed(
    logits: np.ndarray, deltas: np.ndarray, anchors: list[list[float]], scale: float, best: int
) -> list[list[float]]:
    """Anchor by anchor: move, cut, drop, sort, and compare with all that were kept."""
    candidates = []
    for row, column, anchor in np.ndindex(*logits.shape):
        shift = [16 * column, 16 * row] * 2
        x1, y1, x2, y2 = (corner + offset for corner, offset in zip(anchors[anchor], shift, strict=True))
        dx, dy, dw, dh = deltas[row, column, anchor].tolist()
        width, height = x2 - x1 + 1, y2 - y1 + 1
        x, y = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
        width, height = width * math.exp(dw), height * math.exp(dh)
        box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        borders = [SIZE[1] - 1, SIZE[0] - 1] * 2
        box = [min(max(corner, 0), border) for corner, border in zip(box, borders, strict=True)]
        candidates.append((float(logits[row, column, anchor]), box))

    candidates = [(score, box) for score, box in candidates if min(box[2] - box[0], box[3] - box[1]) + 1 >= 16 * scale]
    candidates = sorted(candidates, key=lambda candidate: -candidate[0])[:best]
    kept: list[list[float]] = []
    for _, box in candidates:
        if all(overlap(box, other) <= 0.7 for other in kept):
            kept.append(box)
    return kept


def proposed(
    logits: torch.Tensor, deltas: torch.Tensor, size: tuple[int, int], scale: float, device: str = "cpu"
) -> torch.Tensor:
    """The boxes of an image that is padded for a larger one."""
    cells = logits.shape[:2]
    logits = pad(logits, (0, 0, 0, 2, 0, 1), value=50.0).expand(2, -1, -1, -1).to(device)
    deltas = pad(deltas, (0, 0, 0, 0, 0, 2, 0, 1)).expand(2, -1, -1, -1, -1).to(device)
    boxes, counts = propose(logits, deltas, [logits.shape[1:3], cells], [(999, 999), size], [1.0, scale])
    return boxes[1, : counts[1]].cpu()


@pytest.mark.parametrize(("scale", "best", "rounds"), [(1.0, 6000, 24), (2.5, 6000, 1), (1.0, 100, 24)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_boxes_are_proposed(scale: float, best: int, rounds: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocessing.features.butd.proposals.BEFORE_NMS", best)
    monkeypatch.setattr("preprocessing.features.butd.boxes._ROUNDS", rounds)
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (HEIGHT, WIDTH, 12)).astype(np.float32)
    deltas = rng.normal(0, 0.7, (HEIGHT, WIDTH, 12, 4)).astype(np.float32)
    deltas[1, :, :, 0] = 30.0  # far out of the image, with nothing left after cutting
    found = proposed(torch.from_numpy(logits), torch.from_numpy(deltas), SIZE, scale, device)
    expected = slowly_proposed(logits, deltas, caffe_anchors().tolist(), scale, best)
    assert 10 < len(expected) < 300
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)


def test_three_hundred_are_enough() -> None:
    deltas = torch.zeros(30, 30, 12, 4)
    logits = torch.rand(30, 30, 12, generator=torch.Generator().manual_seed(0))
    assert len(proposed(logits, deltas, (480, 480), 1.0)) == 300


def test_where_nothing_is_proposed_the_image_is() -> None:
    """A photograph of 20 pixels is enlarged thirty times: nothing in it has 16 of its pixels."""
    deltas = torch.full((2, 2, 12, 4), 0.0)
    deltas[..., 2:] = -9.0
    found = proposed(torch.zeros(2, 2, 12), deltas, (30, 32), 30.0)
    assert found.tolist() == [[0, 0, 31, 29]]


def test_channels_go_to_anchors() -> None:
    """Channel a of the logits and channels 4a .. 4a + 3 of the moves belong to anchor a."""
    head = ProposalHead(1, 1, 3).requires_grad_(False)
    for layer in (head.objectness_logits, head.anchor_deltas):
        layer.weight.zero_()
        layer.bias.copy_(torch.arange(len(layer.bias)))
    logits, deltas = head(torch.zeros(1, 1, 2, 5))
    assert tuple(logits.shape) == (1, 2, 5, 3)
    assert logits[0, 1, 4].tolist() == [0, 1, 2]
    assert deltas[0, 1, 4].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
