"""Heads of the detector: a region's feature, object class, attribute and exact box.

R regions, F feature width, O object classes and P attributes without "none", which is the last of each.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import roi_pool

from preprocessing.features.butd.backbone import stage
from preprocessing.features.butd.proposals import STRIDE

POOLED = 14
# Regions in one pass of the last stage: a pooled region takes 0.8 MB, and the stage ten times as much.
_REGIONS_AT_ONCE = 100


class Predictor(nn.Module):
    """Linear layers on a region's feature. The attribute is predicted from it and an embedding of the object."""

    def __init__(self, features: int, objects: int, attributes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(features, objects + 1)
        self.bbox_pred = nn.Linear(features, 4 * objects)
        self.cls_embedding = nn.Embedding(objects + 1, features // 8)
        self.fc_attr = nn.Linear(features + features // 8, features // 4)
        self.attr_score = nn.Linear(features // 4, attributes + 1)

    def attributes(self, features_RF: Tensor, objects_RO: Tensor) -> Tensor:
        """Logits (R, P + 1), given the objects' logits; "none" is an object here."""
        embedded = self.cls_embedding(objects_RO.argmax(dim=1))
        hidden = functional.relu(self.fc_attr(torch.cat([features_RF, embedded], dim=1)))
        logits: Tensor = self.attr_score(hidden)
        return logits


class RegionHeads(nn.Module):
    """The last stage of the ResNet, run on each region by itself, and the predictor."""

    def __init__(self, width: int, objects: int, attributes: int) -> None:
        super().__init__()
        # Dilated instead of strided: the 14 x 14 cells remain.
        self.res5 = stage(16 * width, 8 * width, blocks=3, stride=1, dilation=2)
        self.box_predictor = Predictor(32 * width, objects, attributes)

    def forward(self, map_FHW: Tensor, boxes_R4: Tensor) -> Tensor:
        """The features (R, 32 * width) float32 of regions of one image: averages over 14 x 14 cells, never negative.

        Each region, in pixels of the resized image, is cut into 14 x 14 bins of whole cells, of which the maximum is
        taken (Girshick, Fast R-CNN, section 2.1: RoIPool with rounded corners, not RoIAlign).
        """
        map_1FHW = map_FHW[None].float()
        return torch.cat([self._pooled(map_1FHW, part_R4) for part_R4 in boxes_R4.split(_REGIONS_AT_ONCE)])

    def _pooled(self, map_1FHW: Tensor, boxes_R4: Tensor) -> Tensor:
        dtype = next(self.res5.parameters()).dtype
        x_RFHW: Tensor = roi_pool(map_1FHW, [boxes_R4], POOLED, 1 / STRIDE)
        x_RFHW = x_RFHW.to(dtype, memory_format=torch.channels_last)
        for block in self.res5:
            x_RFHW = block(x_RFHW)
        return x_RFHW.mean(dim=(2, 3), dtype=torch.float32)
