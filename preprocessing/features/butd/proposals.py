"""The region proposal network: where something is, whatever it is (Ren et al., Faster R-CNN, section 3.1).

A anchors at a cell, H x W cells, R proposals of an image.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import nms

from preprocessing.features.butd.anchors import anchors_at_cells, caffe_anchors, detectron2_anchors
from preprocessing.features.butd.boxes import clipped, moved, sides

BEFORE_NMS = 6000
AFTER_NMS = 300
NMS_OVERLAP = 0.7
# In pixels of the photograph; a proposal with a shorter side is dropped.
SMALLEST_SIDE = 16


class AnchorGenerator(nn.Module):
    """Holds the anchors that come with the weights at Hugging Face, as the file names them; the original has others."""

    def __init__(self) -> None:
        super().__init__()
        self.cell_anchors = nn.ParameterList([nn.Parameter(detectron2_anchors(), requires_grad=False)])


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
        self.anchor_generator = AnchorGenerator()
        self.rpn_head = ProposalHead(inputs, width, len(detectron2_anchors()))


def propose(logits_HWA: Tensor, deltas_HWA4: Tensor, size: tuple[int, int], scale: float) -> Tensor:
    """Return the best boxes of one image, best first, none of which covers another: (R, 4), R from 1 to 300.

    Boxes and `size` (height, width) are in pixels of the resized image, which is `scale` times the photograph.
    Differs from the published code, which fails if nothing is proposed: the whole image is the one box.
    """
    height, width = logits_HWA.shape[:2]
    anchors = anchors_at_cells(caffe_anchors().to(logits_HWA.device), height, width)
    boxes = clipped(moved(anchors, deltas_HWA4.reshape(-1, 4)), *size)
    is_large = torch.minimum(*sides(boxes)) >= SMALLEST_SIDE * scale
    scores = logits_HWA.flatten()
    best = torch.argsort(scores, descending=True, stable=True)
    best = best[is_large[best]][:BEFORE_NMS]
    if not len(best):
        return boxes.new_tensor([[0, 0, size[1] - 1, size[0] - 1]])
    boxes, scores = boxes[best], scores[best]
    # The library's boxes end where their last pixel ends.
    kept = nms(boxes + boxes.new_tensor([0, 0, 1, 1]), scores, NMS_OVERLAP)
    return boxes[kept[:AFTER_NMS]]
