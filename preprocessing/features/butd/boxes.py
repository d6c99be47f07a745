"""Arithmetic of boxes (x1, y1, x2, y2) in pixels, whose far edges belong to them: 0 .. 15 is 16 wide; R boxes."""

import torch
from torch import Tensor


def sides(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Widths and heights of boxes (..., 4)."""
    return boxes[..., 2] - boxes[..., 0] + 1, boxes[..., 3] - boxes[..., 1] + 1


def moved(boxes: Tensor, deltas: Tensor) -> Tensor:
    """Boxes (R, 4) after the network's regression (Girshick et al., R-CNN, equations 1 to 4).

    `deltas` (R, 4) are moves of the centre in units of the sides, and logarithms of the growth of the sides.
    """
    width, height = sides(boxes)
    dx, dy, dw, dh = deltas.unbind(-1)
    x = boxes[..., 0] + 0.5 * width + dx * width
    y = boxes[..., 1] + 0.5 * height + dy * height
    across = 0.5 * width * dw.exp()
    down = 0.5 * height * dh.exp()
    # Half a side to either side of the centre: the original code forgets the far edge here.
    return torch.stack([x - across, y - down, x + across, y + down], dim=-1)


def clipped(boxes: Tensor, height: float, width: float) -> Tensor:
    """Boxes (..., 4) cut at the borders of an image of that height and width."""
    limits = boxes.new_tensor([width - 1, height - 1, width - 1, height - 1])
    return torch.minimum(boxes.clamp(min=0), limits)


def overlaps(boxes_R4: Tensor) -> Tensor:
    """Intersection over union of every two boxes, (R, R)."""
    width_R, height_R = sides(boxes_R4)
    area_R = width_R * height_R
    top_left = torch.maximum(boxes_R4[:, None, :2], boxes_R4[None, :, :2])
    bottom_right = torch.minimum(boxes_R4[:, None, 2:], boxes_R4[None, :, 2:])
    shared_RR = (bottom_right - top_left + 1).clamp(min=0).prod(dim=-1)
    return shared_RR / (area_R[:, None] + area_R[None, :] - shared_RR)
