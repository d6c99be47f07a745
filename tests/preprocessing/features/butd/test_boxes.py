"""Box arithmetic against single boxes done by hand."""

from __future__ import annotations

import math

import numpy as np
import torch

from preprocessing.features.butd.boxes import clipped, moved, overlaps

BOXES = torch.tensor([[0, 0, 15, 31], [10, 5, 40, 25], [12, 6, 42, 20], [90, 90, 99, 99]], dtype=torch.float32)


def decoded(box: list[float], delta: list[float]) -> list[float]:
    """One box moved: its centre by parts of its sides, its sides by factors."""
    x1, y1, x2, y2 = box
    dx, dy, dw, dh = delta
    width, height = x2 - x1 + 1, y2 - y1 + 1
    x, y = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
    width, height = width * math.exp(dw), height * math.exp(dh)
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def test_boxes_are_moved() -> None:
    deltas = torch.tensor(np.random.default_rng(0).normal(0, 0.5, (4, 4)), dtype=torch.float32)
    found = moved(BOXES, deltas)
    expected = [decoded(*pair) for pair in zip(BOXES.tolist(), deltas.tolist(), strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_a_box_that_stays_keeps_its_centre_by_the_published_rules() -> None:
    """The original adds its edge to the width and does not take it away: 0 .. 15 becomes 0 .. 16."""
    assert moved(BOXES[:1], torch.zeros(1, 4)).tolist() == [[0, 0, 16, 32]]


def test_boxes_end_at_the_border() -> None:
    boundless = moved(BOXES[:1], torch.tensor([[0.0, 0.0, 500.0, 500.0]]))
    boxes = torch.cat([torch.tensor([[-5.0, 3.0, 70.0, 80.0]]), boundless])
    assert clipped(boxes, height=40, width=60).tolist() == [[0, 3, 59, 39], [0, 0, 59, 39]]


def test_overlaps_count_pixels() -> None:
    """Oracle: sets of the pixels in boxes of whole coordinates."""

    def pixels(box: list[float]) -> set[tuple[int, int]]:
        x1, y1, x2, y2 = map(int, box)
        return {(x, y) for x in range(x1, x2 + 1) for y in range(y1, y2 + 1)}

    sets = [pixels(box) for box in BOXES.tolist()]
    expected = [[len(one & other) / len(one | other) for other in sets] for one in sets]
    np.testing.assert_allclose(overlaps(BOXES).numpy(), expected, rtol=1e-5)
