"""The 12 boxes that stand at every cell of the feature map before the network moves them.

A anchors at a cell, H x W cells. Boxes are (x1, y1, x2, y2) in pixels of the resized image. The order is that of the
Caffe model: all sizes of the flat boxes, then of the square ones, then of the tall ones.
"""

import math

import torch
from torch import Tensor

STRIDE = 16
RATIOS = (0.5, 1.0, 2.0)  # height / width
SCALES = (4, 8, 16, 32)  # times the stride


def caffe_anchors() -> Tensor:
    """The anchors of the original model, (12, 4) float32, with both edges inside the box.

    The first cell's pixels 0 .. 15 are given each ratio with sides rounded to whole pixels, and are then scaled about
    their centre 7.5 (Ren et al., Faster R-CNN, generate_anchors).
    """
    centre = (STRIDE - 1) / 2
    boxes = []
    for ratio in RATIOS:
        width = round(math.sqrt(STRIDE**2 / ratio))
        height = round(width * ratio)
        for scale in SCALES:
            across, down = (width * scale - 1) / 2, (height * scale - 1) / 2
            boxes.append([centre - across, centre - down, centre + across, centre + down])
    return torch.tensor(boxes)


def detectron2_anchors() -> Tensor:
    """The anchors of detectron2, (12, 4) float32: exact sides about the cell's corner, which is its centre there."""
    boxes = []
    for ratio in RATIOS:
        for scale in SCALES:
            width = STRIDE * scale / math.sqrt(ratio)
            across, down = width / 2, width * ratio / 2
            boxes.append([-across, -down, across, down])
    return torch.tensor(boxes)


def anchors_at_cells(anchors_A4: Tensor, height: int, width: int) -> Tensor:
    """The anchors of all cells of a feature map, (H * W * A, 4): cells in row-major order, all anchors of a cell."""
    x_W = torch.arange(width, device=anchors_A4.device) * STRIDE
    y_H = torch.arange(height, device=anchors_A4.device) * STRIDE
    y_HW, x_HW = torch.meshgrid(y_H, x_W, indexing="ij")
    shifts_HW4 = torch.stack([x_HW, y_HW, x_HW, y_HW], dim=-1)
    return (shifts_HW4[:, :, None] + anchors_A4).reshape(-1, 4)


def order_of(anchors_A4: Tensor) -> list[int]:
    """For each of our 12 anchors the row of a file's anchors with its ratio and size; ValueError if they are others."""
    if tuple(anchors_A4.shape) != (len(RATIOS) * len(SCALES), 4):
        raise ValueError(f"anchors of shape {tuple(anchors_A4.shape)}, not (12, 4)")
    rows: dict[tuple[int, int], int] = {}
    for row, (x1, y1, x2, y2) in enumerate(anchors_A4.tolist()):
        if not (x2 > x1 and y2 > y1):
            raise ValueError(f"anchor {row} is not a box: {(x1, y1, x2, y2)}")
        ratio = _nearest(RATIOS, (y2 - y1) / (x2 - x1))
        scale = _nearest(SCALES, math.sqrt((x2 - x1) * (y2 - y1)) / STRIDE)
        rows[ratio, scale] = row
    if len(rows) != len(anchors_A4):
        raise ValueError("two anchors have the same ratio and size")
    return [rows[ratio, scale] for ratio in range(len(RATIOS)) for scale in range(len(SCALES))]


def _nearest(values: tuple[float, ...], value: float) -> int:
    """The place of the nearest value by ratio, which is at most 15 per cent off: roundings of sides are."""
    distances = [abs(math.log(value / known)) for known in values]
    place = distances.index(min(distances))
    if distances[place] > math.log(1.15):
        raise ValueError(f"an anchor's ratio or size is {value:.3g} where {values} are known")
    return place
