"""Boxes (x1, y1, x2, y2) in pixels, whose far edges belong to them (0 .. 15 is 16 wide), and the choice of an image's.

B images, R boxes of each, of which the last may be padding, O object classes. The host waits for values that it asks a
GPU for, so it asks for few.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def uploaded(values: Any, device: torch.device) -> Tensor:
    """A tensor of the host's on a device; a GPU copies it by itself, from pinned memory, and the host does not wait."""
    tensor = torch.as_tensor(values)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


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


def overlaps(boxes: Tensor) -> Tensor:
    """Intersection over union of every two of boxes (..., R, 4), (..., R, R)."""
    left, top, right, bottom = boxes.unsqueeze(-1).unbind(-2)
    across = (torch.minimum(right, right.mT) - torch.maximum(left, left.mT) + 1).clamp_(min=0)
    down = (torch.minimum(bottom, bottom.mT) - torch.maximum(top, top.mT) + 1).clamp_(min=0)
    shared, areas = across.mul_(down), torch.mul(*sides(boxes)).unsqueeze(-1)
    return shared / (areas + areas.mT - shared)


# Proposals took 4 to 10, and the regions of random weights 19.
_ROUNDS = 24


def remaining(covers_BRR: Tensor, candidates_BR: Tensor, kept_BR: Tensor) -> tuple[Tensor, Tensor]:
    """NMS of boxes in the order of their scores: which candidates remain, (B, R) of 0 and 1, and whether that is final.

    Whether the box of a row overlaps too much with that of a column is in `covers`, `kept` is a guess. By definition a
    candidate remains if no better one that remains covers it. Rounds apply that to all boxes at once until none changes
    anything, as many as the longest chain has boxes whose fates depend on each other; 24 on a GPU, without a look.
    """
    covers_BRR, kept_BR1 = covers_BRR.float().tril_(-1), kept_BR.unsqueeze(2)
    for _ in range(_ROUNDS):
        before_BR1 = kept_BR1
        kept_BR1 = torch.baddbmm(candidates_BR.unsqueeze(2), covers_BRR, before_BR1, alpha=-1).clamp_(min=0)
        if not kept_BR1.is_cuda and torch.equal(kept_BR1, before_BR1):
            break
    return kept_BR1.squeeze(2), (kept_BR1 == before_BR1).all()


OVERLAP = 0.3
CONFIDENCE = 0.2
# Scores of an image looked at first. Four times as many take sixteen times as long.
_HIGHEST = 1024


def select_confident(
    boxes_BR4: Tensor, scores_BRO: Tensor, counts: Sequence[int], minimum: int, maximum: int
) -> tuple[Tensor, Tensor]:
    """Return the boxes chosen by the original code, all confident ones: indices (B, N), and how many are an image's.

    Boxes are thinned out class by class (NMS 0.3). A box's confidence is its highest score in a class in which it
    remained. Those with a confidence of 0.2 or more are taken, in their order; if they are too few or too many, the
    most confident ones instead, in descending order. Boxes are in pixels of the photograph, `counts` of each image.
    """
    counts_B = uploaded(list(counts), boxes_BR4.device)
    is_padding_BR = torch.arange(boxes_BR4.shape[1], device=boxes_BR4.device) >= counts_B[:, None]
    scores_BRO = scores_BRO.masked_fill(is_padding_BR[:, :, None], -1)
    covers_BRR = overlaps(boxes_BR4) > OVERLAP
    confidence_BR, is_enough = _by_highest(covers_BRR, scores_BRO, counts_B.clamp(max=minimum))
    if not is_enough.tolist():
        confidence_BR = (scores_BRO * _kept_in_class(covers_BRR, scores_BRO)).amax(dim=2)
    is_sure_BR = confidence_BR >= CONFIDENCE
    sure_B = is_sure_BR.sum(dim=1)
    taken_B = sure_B.clamp(minimum, maximum)
    rank_BR = torch.where((taken_B == sure_B)[:, None], is_sure_BR.float(), confidence_BR)
    chosen_BR = rank_BR.argsort(dim=1, descending=True, stable=True)
    return chosen_BR[:, :maximum], torch.minimum(taken_B, counts_B)


def _by_highest(covers_BRR: Tensor, scores_BRO: Tensor, needed_B: Tensor) -> tuple[Tensor, Tensor]:
    """The confidences (B, R) by an image's highest scores alone, and whether the sure and `needed` best are among them.

    Lower scores have no part in the NMS of these, and no other box has a higher confidence.
    """
    # Stable: of equal scores those of the first boxes come first, as these do in the choice.
    scores_BH, order_BH = (
        x_BS[:, :_HIGHEST] for x_BS in scores_BRO.flatten(1).sort(dim=1, descending=True, stable=True)
    )
    boxes_BH, classes_BH = order_BH // scores_BRO.shape[2], order_BH % scores_BRO.shape[2]
    covers_BHH = covers_BRR.take_along_dim(boxes_BH[:, :, None], dim=1).take_along_dim(boxes_BH[:, None], dim=2)
    covers_BHH &= classes_BH[:, :, None] == classes_BH[:, None]
    kept_BH, is_final = remaining(covers_BHH, all_BH := torch.ones_like(scores_BH), all_BH)
    confidence_BR = torch.zeros_like(scores_BRO[:, :, 0]).scatter_reduce(1, boxes_BH, scores_BH * kept_BH, "amax")
    last_B1 = scores_BH[:, -1:]
    is_enough_B = ((confidence_BR >= last_B1).sum(dim=1) >= needed_B) & (last_B1[:, 0] < CONFIDENCE)
    return confidence_BR, is_final & is_enough_B.all()


def _kept_in_class(covers_BRR: Tensor, scores_BRO: Tensor) -> Tensor:
    """(B, R, O): whether a box survives NMS by the scores of a class; all classes take their steps together.

    Whether one box covers another does not depend on their order, so one that survives is covered by none of the others
    that do: what is never covered has survived.
    """
    covers_BRR = covers_BRR & ~torch.eye(covers_BRR.shape[1], dtype=torch.bool, device=covers_BRR.device)
    order_BRO = torch.argsort(scores_BRO, dim=1, descending=True, stable=True)
    images_B1 = torch.arange(len(covers_BRR), device=covers_BRR.device)[:, None]
    covered_BOR = torch.zeros(scores_BRO.mT.shape, dtype=torch.bool, device=scores_BRO.device)
    for next_BO in order_BRO.unbind(1):
        covered_BOR |= covers_BRR[images_B1, next_BO] > covered_BOR.gather(2, next_BO[:, :, None])
    return ~covered_BOR.mT
