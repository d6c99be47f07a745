"""Boxes (x1, y1, x2, y2) in pixels, whose far edges belong to them (0 .. 15 is 16 wide), and the choice of an image's.

R proposals, O object classes.
"""

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


def overlaps(boxes_R4: Tensor) -> Tensor:
    """Intersection over union of every two boxes, (R, R)."""
    width_R, height_R = sides(boxes_R4)
    area_R = width_R * height_R
    top_left = torch.maximum(boxes_R4[:, None, :2], boxes_R4[None, :, :2])
    bottom_right = torch.minimum(boxes_R4[:, None, 2:], boxes_R4[None, :, 2:])
    shared_RR = (bottom_right - top_left + 1).clamp(min=0).prod(dim=-1)
    return shared_RR / (area_R[:, None] + area_R[None, :] - shared_RR)


OVERLAP = 0.3
CONFIDENCE = 0.2


def select_confident(boxes_R4: Tensor, scores_RO: Tensor, minimum: int, maximum: int) -> Tensor:
    """Return the proposals chosen by the original code: all confident ones.

    Boxes are thinned out class by class (NMS 0.3). A proposal's confidence is its highest score (R, O) in a class in
    which it remained. Those with a confidence of 0.2 or more are taken, in the order of the proposals; if they are too
    few or too many, the most confident ones instead, in descending order. Boxes are in pixels of the photograph.
    """
    confidence_R = (scores_RO * _kept_in_class(overlaps(boxes_R4), scores_RO)).amax(dim=1)
    sure = torch.nonzero(confidence_R >= CONFIDENCE).flatten()
    if minimum <= len(sure) <= maximum:
        return sure
    count = minimum if len(sure) < minimum else maximum
    return torch.argsort(confidence_R, descending=True, stable=True)[:count]


def _kept_in_class(overlaps_RR: Tensor, scores_RO: Tensor) -> Tensor:
    """(R, O): whether a proposal survives NMS by the scores of a class; all classes take their steps together."""
    covers_RR = overlaps_RR > OVERLAP
    order_RO = torch.argsort(scores_RO, dim=0, descending=True, stable=True)
    classes_O = torch.arange(scores_RO.shape[1], device=scores_RO.device)
    suppressed_OR = torch.zeros(scores_RO.T.shape, dtype=torch.bool, device=scores_RO.device)
    kept_OR = torch.zeros_like(suppressed_OR)
    for next_O in order_RO:
        survives_O = ~suppressed_OR[classes_O, next_O]
        kept_OR[classes_O, next_O] = survives_O
        suppressed_OR |= covers_RR[next_O] & survives_O[:, None]
    return kept_OR.T
