"""Arithmetic of boxes (x1, y1, x2, y2) in pixels; R boxes, O classes.

`edge` is 1 where the far edges belong to the box and 0 where they do not, see :class:`Variant`.
"""

import torch
from torch import Tensor


def sides(boxes: Tensor, edge: float) -> tuple[Tensor, Tensor]:
    """Widths and heights of boxes (..., 4)."""
    return boxes[..., 2] - boxes[..., 0] + edge, boxes[..., 3] - boxes[..., 1] + edge


def moved(boxes: Tensor, deltas: Tensor, edge: float, largest_log_growth: float) -> Tensor:
    """Boxes (R, 4) after the network's regression (Girshick et al., R-CNN, equations 1 to 4).

    `deltas` (R, 4) are moves of the centre in units of the sides, and logarithms of the growth of the sides.
    """
    width, height = sides(boxes, edge)
    dx, dy, dw, dh = deltas.unbind(-1)
    x = boxes[..., 0] + 0.5 * width + dx * width
    y = boxes[..., 1] + 0.5 * height + dy * height
    across = 0.5 * width * dw.clamp(max=largest_log_growth).exp()
    down = 0.5 * height * dh.clamp(max=largest_log_growth).exp()
    # Half a side to either side of the centre in both variants: the original code, too, forgets its edge here.
    return torch.stack([x - across, y - down, x + across, y + down], dim=-1)


def clipped(boxes: Tensor, height: float, width: float, edge: float) -> Tensor:
    """Boxes (..., 4) cut at the borders of an image of that height and width."""
    limits = boxes.new_tensor([width - edge, height - edge, width - edge, height - edge])
    return torch.minimum(boxes.clamp(min=0), limits)


def overlaps(boxes_R4: Tensor, edge: float) -> Tensor:
    """Intersection over union of every two boxes, (R, R)."""
    width_R, height_R = sides(boxes_R4, edge)
    area_R = width_R * height_R
    top_left = torch.maximum(boxes_R4[:, None, :2], boxes_R4[None, :, :2])
    bottom_right = torch.minimum(boxes_R4[:, None, 2:], boxes_R4[None, :, 2:])
    shared_RR = (bottom_right - top_left + edge).clamp(min=0).prod(dim=-1)
    return shared_RR / (area_R[:, None] + area_R[None, :] - shared_RR)
