"""Anchors against the published ones, and against drawing them one by one."""

from __future__ import annotations

import pytest
import torch

from preprocessing.features.butd.anchors import anchors_at_cells, caffe_anchors, detectron2_anchors, order_of

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
        (torch.zeros(12, 4), "anchor 0 is not a box"),
        (caffe_anchors() * 3, "size is 12"),
        (caffe_anchors()[[0, *range(11)]], "same ratio and size"),
    ],
)
def test_anchors_of_another_model(anchors: torch.Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        order_of(anchors)
