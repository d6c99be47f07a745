"""Boxes (x1, y1, x2, y2) in pixels, whose far edges belong to them (0 .. 15 is 16 wide), and the choice of an image's.

B images, R proposals of an image, O object classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


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


def select_confident(boxes: Sequence[Tensor], scores: Sequence[Tensor], minimum: int, maximum: int) -> list[Tensor]:
    """Return the proposals of each image chosen by the original code: all confident ones.

    Boxes (R, 4) are thinned out class by class (NMS 0.3). A proposal's confidence is its highest score (R, O) in a
    class in which it remained. Those with a confidence of 0.2 or more are taken, in the order of the proposals; if they
    are too few or too many, the most confident ones instead, in descending order. Boxes are in pixels of the
    photograph.
    """
    # A GPU takes as long for the steps of one image as for those of many, whose choices fit no cache of a processor.
    at_once = len(boxes) if boxes and boxes[0].is_cuda else 1
    confidences = [
        confidence_R
        for first in range(0, len(boxes), at_once)
        for confidence_R in _confidences(boxes[first : first + at_once], scores[first : first + at_once])
    ]
    # The only numbers that the host has to wait for.
    sure = torch.stack([(confidence_R >= CONFIDENCE).sum() for confidence_R in confidences]).tolist() if boxes else []
    return [
        _most_confident(confidence_R, count, minimum, maximum)
        for confidence_R, count in zip(confidences, sure, strict=True)
    ]


def _most_confident(confidence_R: Tensor, sure: int, minimum: int, maximum: int) -> Tensor:
    """Return the proposals to take, of which `sure` are confident."""
    if minimum <= sure <= maximum:
        return torch.argsort((confidence_R < CONFIDENCE).byte(), stable=True)[:sure]
    return torch.argsort(confidence_R, descending=True, stable=True)[: minimum if sure < minimum else maximum]


def _confidences(boxes: Sequence[Tensor], scores: Sequence[Tensor]) -> list[Tensor]:
    """Return the confidence (R,) of the proposals of each image."""
    scores_BRO = pad_sequence(list(scores), batch_first=True, padding_value=-1)
    covers_BRR = scores_BRO.new_zeros((len(boxes), scores_BRO.shape[1], scores_BRO.shape[1]), dtype=torch.bool)
    for covers_RR, boxes_R4 in zip(covers_BRR, boxes, strict=True):
        covers_RR[: len(boxes_R4), : len(boxes_R4)] = overlaps(boxes_R4) > OVERLAP
    confidence_BR = (scores_BRO * _kept_in_class(covers_BRR, scores_BRO)).amax(dim=2)
    return [confidence_R[: len(boxes_R4)] for confidence_R, boxes_R4 in zip(confidence_BR, boxes, strict=True)]


def _kept_in_class(covers_BRR: Tensor, scores_BRO: Tensor) -> Tensor:
    """(B, R, O): whether a proposal survives NMS by the scores of a class; all classes take their steps together.

    Whether one box covers another (B, R, R) does not depend on their order, so one that survives is covered by none of
    the others that do: what is never covered has survived.
    """
    covers_BRR = covers_BRR & ~torch.eye(covers_BRR.shape[1], dtype=torch.bool, device=covers_BRR.device)
    order_BRO = torch.argsort(scores_BRO, dim=1, descending=True, stable=True)
    images_B1 = torch.arange(len(covers_BRR), device=covers_BRR.device)[:, None]
    covered_BOR = torch.zeros(scores_BRO.mT.shape, dtype=torch.bool, device=scores_BRO.device)
    for next_BO in order_BRO.unbind(1):
        survives_BO1 = ~covered_BOR.gather(2, next_BO[:, :, None])
        covered_BOR |= covers_BRR[images_B1, next_BO] & survives_BO1
    return ~covered_BOR.mT
