"""The region proposal network: where something is, whatever it is (Ren et al., Faster R-CNN, section 3.1).

A anchors at each of H x W cells, R proposals of an image. Anchors have the order of the Caffe model: all sizes of the
flat boxes, then of the square ones, then of the tall ones.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import clip_boxes_to_image, nms

from preprocessing.features.butd.boxes import moved, sides

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


def propose(logits_HWA: Tensor, deltas_HWA4: Tensor, size: tuple[int, int], scale: float) -> Tensor:
    """Return the best boxes of one image, best first, none of which covers another: (R, 4), R from 1 to 300.

    Boxes and `size` (height, width) are in pixels of the resized image, which is `scale` times the photograph.
    Differs from the published code, which fails if nothing is proposed: the complete image is the one box.
    """
    height, width = logits_HWA.shape[:2]
    anchors = anchors_at_cells(caffe_anchors().to(logits_HWA.device), height, width)
    # The library's boxes end where their last pixel ends.
    boxes: Tensor = clip_boxes_to_image(moved(anchors, deltas_HWA4.reshape(-1, 4)), (size[0] - 1, size[1] - 1))
    is_large = torch.minimum(*sides(boxes)) >= SMALLEST_SIDE * scale
    scores = logits_HWA.flatten()
    best = torch.argsort(scores, descending=True, stable=True)
    best = best[is_large[best]][:BEFORE_NMS]
    if not len(best):
        return boxes.new_tensor([[0, 0, size[1] - 1, size[0] - 1]])
    boxes, scores = boxes[best], scores[best]
    kept = nms(boxes + boxes.new_tensor([0, 0, 1, 1]), scores, NMS_OVERLAP)
    return boxes[kept[:AFTER_NMS]]
