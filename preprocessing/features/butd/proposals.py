"""The region proposal network: where something is, whatever it is (Ren et al., Faster R-CNN, section 3.1).

A anchors at each of H x W cells, K in all, R boxes of an image. Anchors have the order of the Caffe model: all sizes of
the flat boxes, then of the square ones, then of the tall ones.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from preprocessing.features.butd.backbone import Sizes
from preprocessing.features.butd.boxes import moved, overlaps, remaining, sides, uploaded

STRIDE = 16
RATIOS = (0.5, 1.0, 2.0)  # height / width
SCALES = (4, 8, 16, 32)  # times the stride


def caffe_anchors() -> Tensor:
    """The anchors of the original model, (12, 4) float32, with both edges inside the box.

    The first cell's pixels 0 .. 15 are given each ratio with sides rounded to whole pixels, and are then scaled about
    their centre 7.5 (Ren et al., Faster R-CNN, generate_anchors).
    """
    sides = [(width := round(math.sqrt(STRIDE**2 / ratio)), round(width * ratio)) for ratio in RATIOS]
    return _boxes_around((STRIDE - 1) / 2, [(w * scale - 1, h * scale - 1) for w, h in sides for scale in SCALES])


def detectron2_anchors() -> Tensor:
    """The anchors of detectron2, (12, 4) float32: exact sides about the cell's corner, which is its centre there."""
    widths = [(STRIDE * scale / math.sqrt(ratio), ratio) for ratio in RATIOS for scale in SCALES]
    return _boxes_around(0.0, [(width, width * ratio) for width, ratio in widths])


def _boxes_around(centre: float, sides: Iterable[tuple[float, float]]) -> Tensor:
    return torch.tensor([[centre - w / 2, centre - h / 2, centre + w / 2, centre + h / 2] for w, h in sides])


def anchors_at_cells(anchors_A4: Tensor, height: int, width: int) -> Tensor:
    """The anchors of all cells of a feature map, (H * W * A, 4): cells in row-major order, all anchors of a cell."""
    x_W = torch.arange(width, device=anchors_A4.device) * STRIDE
    y_H = torch.arange(height, device=anchors_A4.device) * STRIDE
    y_HW, x_HW = torch.meshgrid(y_H, x_W, indexing="ij")
    shifts_HW4 = torch.stack([x_HW, y_HW, x_HW, y_HW], dim=-1)
    return (shifts_HW4[:, :, None] + anchors_A4).reshape(-1, 4)


def order_of(anchors_A4: Tensor) -> list[int]:
    """For each of our 12 anchors the row of a file's anchor with its sides; ValueError if they are others.

    Sides may be 15 per cent off: so much does rounding change them.
    """
    if tuple(anchors_A4.shape) != (len(RATIOS) * len(SCALES), 4):
        raise ValueError(f"anchors of shape {tuple(anchors_A4.shape)}, not (12, 4)")
    ours_A2, theirs_A2 = ((boxes[:, 2:] - boxes[:, :2]).log() for boxes in (detectron2_anchors(), anchors_A4))
    distances_A, rows_A = torch.cdist(ours_A2, theirs_A2, p=math.inf).min(dim=1)
    if not bool((distances_A < math.log(1.15)).all()):
        raise ValueError(f"its anchors are not of the ratios {RATIOS} and {SCALES} times {STRIDE} pixels")
    return rows_A.tolist()


BEFORE_NMS = 6000
AFTER_NMS = 300
NMS_OVERLAP = 0.7
# In pixels of the photograph; a proposal with a shorter side is dropped.
SMALLEST_SIDE = 16


class ProposalHead(nn.Module):
    """Objectness of each anchor, and its regression to the object."""

    def __init__(self, inputs: int, width: int, anchors: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width, 3, padding=1)
        self.objectness_logits = nn.Conv2d(width, anchors, 1)
        self.anchor_deltas = nn.Conv2d(width, 4 * anchors, 1)

    def forward(self, maps_BFHW: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, H, W, A) and moves (B, H, W, A, 4) of all anchors, float32."""
        hidden = functional.relu(self.conv(maps_BFHW), inplace=True)
        logits_BHWA = self.objectness_logits(hidden).permute(0, 2, 3, 1)
        deltas_BHWA4 = self.anchor_deltas(hidden).permute(0, 2, 3, 1).unflatten(-1, (-1, 4))
        return logits_BHWA.float(), deltas_BHWA4.float()


class ProposalNetwork(nn.Module):
    """The head with its anchors; its hidden layer is 512 wide as published."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        # The anchors that come with the weights at Hugging Face, under their name there; the original has others.
        anchors = nn.ParameterList([nn.Parameter(detectron2_anchors(), requires_grad=False)])
        self.anchor_generator = nn.ModuleDict({"cell_anchors": anchors})
        self.rpn_head = ProposalHead(inputs, width, len(detectron2_anchors()))


def propose(
    logits_BHWA: Tensor, deltas_BHWA4: Tensor, cells: Sizes, sizes: Sizes, scales: Sequence[float]
) -> tuple[Tensor, list[int]]:
    """Return the best boxes of each image (B, R, 4), best first, none of which covers another, and how many they are.

    An image has 1 to 300; the rest of its R is padding. `cells` are heights and widths in cells. Boxes and `sizes`,
    heights and widths, are in pixels of the resized images, which are `scales` times the photographs.
    Differs from the published code, which fails if nothing is proposed: the complete image is the one box.
    """
    device, height, width = logits_BHWA.device, *logits_BHWA.shape[1:3]
    # The library's boxes end where their last pixel ends.
    images = zip(cells, sizes, scales, strict=True)
    limits = [(*cell, 0, 0, w - 1, h - 1, SMALLEST_SIDE * scale) for cell, (h, w), scale in images]
    rows_B1, columns_B1, *whole_4B1, side_B1 = uploaded(torch.tensor(limits).T[:, :, None], device)
    whole_B14 = torch.stack(whole_4B1, dim=2)
    anchors_K4 = anchors_at_cells(uploaded(caffe_anchors(), device), height, width)
    boxes_BK4 = moved(anchors_K4, deltas_BHWA4.flatten(1, 3)).clamp_(min=0).minimum(whole_B14[:, :, 2:].repeat(1, 1, 2))
    may_BHWA = (torch.minimum(*sides(boxes_BK4)) >= side_B1).view_as(logits_BHWA)
    may_BHWA &= (torch.arange(height, device=device) < rows_B1)[:, :, None, None]
    may_BHWA &= (torch.arange(width, device=device) < columns_B1)[:, None, :, None]
    scores_BK = logits_BHWA.masked_fill(~may_BHWA, -math.inf).flatten(1)
    best_BR = scores_BK.argsort(dim=1, descending=True, stable=True)[:, :BEFORE_NMS]
    may_BR = may_BHWA.flatten(1).gather(1, best_BR)
    boxes_BR4 = boxes_BK4.take_along_dim(best_BR[:, :, None], dim=1)
    boxes_BR4[:, :1] = torch.where(may_BR[:, :1, None], boxes_BR4[:, :1], whole_B14)
    may_BR[:, 0] = True
    return _distinct(boxes_BR4, may_BR.float())


def _distinct(boxes_BR4: Tensor, candidates_BR: Tensor) -> tuple[Tensor, list[int]]:
    """The first 300 candidates that remain after NMS, then padding, and how many they are. Boxes are best first."""
    # The first part is mostly enough on a GPU, where the host waits once for each.
    at_once = 2000 if boxes_BR4.is_cuda else 300
    found_BR4, is_found_BR = boxes_BR4[:, :0], candidates_BR[:, :0]
    for part_BR4, may_BR in zip(boxes_BR4.split(at_once, dim=1), candidates_BR.split(at_once, dim=1), strict=True):
        found_BR4, may_BR = torch.cat([found_BR4, part_BR4], dim=1), torch.cat([is_found_BR, may_BR], dim=1)
        covers_BRR, kept_BR, is_final = overlaps(found_BR4) > NMS_OVERLAP, may_BR, 0
        while not is_final:
            kept_BR, is_settled = remaining(covers_BRR, may_BR, kept_BR)
            best_BR = kept_BR.argsort(dim=1, descending=True, stable=True)[:, :AFTER_NMS]
            is_found_BR = kept_BR.gather(1, best_BR)
            counts_B = is_found_BR.sum(dim=1)
            lacks = ((counts_B < AFTER_NMS) & (may_BR[:, -1] > 0)).any()
            is_final, goes_on, *counts = torch.stack([is_settled, lacks, *counts_B]).int().tolist()
        found_BR4 = found_BR4.take_along_dim(best_BR[:, :, None], dim=1)
        if not goes_on:
            break
    return found_BR4, counts
