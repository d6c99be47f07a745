"""Box arithmetic against single boxes done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from preprocessing.features.butd.boxes import clipped, moved, overlaps
from preprocessing.features.butd.variants import VARIANTS

BOXES = torch.tensor([[0, 0, 15, 31], [10, 5, 40, 25], [12, 6, 42, 20], [90, 90, 99, 99]], dtype=torch.float32)


def decoded(box: list[float], delta: list[float], edge: float, limit: float) -> list[float]:
    """One box moved: its centre by parts of its sides, its sides by factors."""
    x1, y1, x2, y2 = box
    dx, dy, dw, dh = delta
    width, height = x2 - x1 + edge, y2 - y1 + edge
    x, y = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
    width, height = width * math.exp(min(dw, limit)), height * math.exp(min(dh, limit))
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


@pytest.mark.parametrize("name", ["caffe", "detectron2"])
def test_boxes_are_moved(name: str) -> None:
    variant = VARIANTS[name]
    deltas = torch.tensor(np.random.default_rng(0).normal(0, 0.5, (4, 4)), dtype=torch.float32)
    deltas[0, 2] = 5.0  # more than a box grows in detectron2: log(62.5) = 4.135
    found = moved(BOXES, deltas, variant.edge, variant.largest_log_growth)
    limit = math.log(62.5) if name == "detectron2" else math.inf
    edge = 1.0 if name == "caffe" else 0.0
    expected = [decoded(*pair, edge, limit) for pair in zip(BOXES.tolist(), deltas.tolist(), strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_a_box_that_stays_keeps_its_centre_by_the_published_rules() -> None:
    """The original adds its edge to the width and does not take it away: 0 .. 15 becomes 0 .. 16."""
    still = torch.zeros(1, 4)
    assert moved(BOXES[:1], still, 1.0, math.inf).tolist() == [[0, 0, 16, 32]]
    assert moved(BOXES[:1], still, 0.0, 4.135).tolist() == [[0, 0, 15, 31]]


@pytest.mark.parametrize(("edge", "expected"), [(1.0, [0, 3, 59, 39]), (0.0, [0, 3, 60, 40])])
def test_boxes_end_at_the_border(edge: float, expected: list[float]) -> None:
    assert clipped(torch.tensor([[-5.0, 3.0, 70.0, 80.0]]), height=40, width=60, edge=edge).tolist() == [expected]


def test_a_boundless_box_is_the_image() -> None:
    boxes = moved(BOXES[:1], torch.tensor([[0.0, 0.0, 500.0, 500.0]]), 1.0, math.inf)
    assert clipped(boxes, height=40, width=60, edge=1.0).tolist() == [[0, 0, 59, 39]]


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_overlaps_count_pixels(edge: float) -> None:
    """Oracle: sets of the pixels in boxes of whole coordinates."""

    def pixels(box: list[float]) -> set[tuple[int, int]]:
        x1, y1, x2, y2 = map(int, box)
        return {(x, y) for x in range(x1, x2 + int(edge)) for y in range(y1, y2 + int(edge))}

    sets = [pixels(box) for box in BOXES.tolist()]
    expected = [[len(one & other) / len(one | other) for other in sets] for one in sets]
    np.testing.assert_allclose(overlaps(BOXES, edge).numpy(), expected, rtol=1e-5)
