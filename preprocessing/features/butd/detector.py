"""The complete network, from pixels to the regions of each image.

B images, R proposals of an image, N regions, F feature width; O object classes and P attributes without "none", which
is the last of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import roi_pool

from preprocessing.features.butd.backbone import Backbone, Sizes, stage
from preprocessing.features.butd.boxes import select_confident
from preprocessing.features.butd.proposals import STRIDE, ProposalNetwork, propose
from preprocessing.features.butd.resize import Pixels

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


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the network, by default as published; features are 32 * `width` wide, `blocks` of stages 2, 3 and 4."""

    width: int = 64
    blocks: Sequence[int] = (3, 4, 23)
    objects: int = 1600
    attributes: int = 400


# Of the regions of an image by name: "features" (N, F), "boxes" (N, 4) as x1, y1, x2, y2 in pixels of the photograph,
# and, each (N,), "objects" and "attributes", classes from 0, with "object_scores" and "attribute_scores".
Regions = dict[str, Tensor]


class Detector(nn.Module):
    """Faster R-CNN on a ResNet, with attributes, that gives `minimum` to `maximum` regions an image; inference only.

    Its state dict has the names of the weights at Hugging Face (`unc-nlp/frcnn-vg-finetuned`).
    """

    def __init__(self, size: Size, minimum: int, maximum: int) -> None:
        super().__init__()
        self.backbone = Backbone(size.width, size.blocks)
        self.proposal_generator = ProposalNetwork(16 * size.width, 8 * size.width)
        self.roi_heads = RegionHeads(size.width, size.objects, size.attributes)
        self._minimum, self._maximum = minimum, maximum
        self.eval().requires_grad_(False)

    def compute_in(self, dtype: torch.dtype) -> None:
        """Let the convolutions compute in a type; boxes, scores and averages stay in float32."""
        self.backbone.to(dtype)
        self.proposal_generator.rpn_head.to(dtype)
        self.roi_heads.res5.to(dtype)

    @torch.inference_mode()
    def forward(self, images: Sequence[Pixels]) -> list[Regions]:
        """The regions of each image; the sizes of the images may differ."""
        maps_BFHW, sizes = self.maps(images)
        proposals = self.proposals(maps_BFHW, sizes, images)
        features = [
            self.roi_heads(map_FHW, proposals_R4) for map_FHW, proposals_R4 in zip(maps_BFHW, proposals, strict=True)
        ]
        return self.select(features, proposals, images)

    def maps(self, images: Sequence[Pixels]) -> tuple[Tensor, Sizes]:
        """The feature maps of a padded batch, and the height and width in cells of each."""
        weight = next(self.backbone.parameters())
        sizes = [image.values.shape[1:] for image in images]
        height, width = (max(sides) for sides in zip(*sizes, strict=True))
        batch = torch.zeros((len(images), 3, height, width))
        for row, image in zip(batch, images, strict=True):
            row[:, : image.values.shape[1], : image.values.shape[2]] = torch.from_numpy(image.values)
        batch = batch.to(weight.device, weight.dtype, memory_format=torch.channels_last)
        maps: tuple[Tensor, Sizes] = self.backbone(batch, sizes)
        return maps

    def proposals(self, maps_BFHW: Tensor, sizes: Sizes, images: Sequence[Pixels]) -> list[Tensor]:
        """The proposals (R, 4) of each image, in pixels of the resized image."""
        logits_BHWA, deltas_BHWA4 = self.proposal_generator.rpn_head(maps_BFHW)
        return [
            propose(
                logits_BHWA[row, :height, :width],
                deltas_BHWA4[row, :height, :width],
                (image.values.shape[1], image.values.shape[2]),
                image.scale,
            )
            for row, ((height, width), image) in enumerate(zip(sizes, images, strict=True))
        ]

    def select(
        self, features: Sequence[Tensor], proposals: Sequence[Tensor], images: Sequence[Pixels]
    ) -> list[Regions]:
        """The regions of each image, from its proposals (R, 4) and their features (R, F)."""
        objects = [self.roi_heads.box_predictor.cls_score(features_RF) for features_RF in features]
        # Only these probabilities count, but "none" takes its share of them.
        scores = [objects_RO.softmax(dim=1)[:, :-1] for objects_RO in objects]
        boxes = [proposals_R4 / image.scale for proposals_R4, image in zip(proposals, images, strict=True)]
        chosen = select_confident(boxes, scores, self._minimum, self._maximum)
        found = zip(features, boxes, objects, scores, chosen, strict=True)
        return [self._described(*(values[chosen_N] for values in of_image)) for *of_image, chosen_N in found]

    def _described(self, features_NF: Tensor, boxes_N4: Tensor, objects_NO: Tensor, scores_NO: Tensor) -> Regions:
        """The regions that were chosen, with their classes."""
        object_scores_N, objects_N = scores_NO.max(dim=1)
        scores_NP = self.roi_heads.box_predictor.attributes(features_NF, objects_NO).softmax(dim=1)[:, :-1]
        attribute_scores_N, attributes_N = scores_NP.max(dim=1)
        regions = {"features": features_NF, "boxes": boxes_N4, "objects": objects_N, "object_scores": object_scores_N}
        return regions | {"attributes": attributes_N, "attribute_scores": attribute_scores_N}


def random_detector(size: Size, minimum: int, maximum: int, seed: int) -> Detector:
    """A network whose parameters depend on the seed alone; torch's own generator is untouched.

    The layers on top start as in the paper (Ren et al., section 3.1.3: normal, 0.01).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        detector = Detector(size, minimum, maximum)
        head, predictor = detector.proposal_generator.rpn_head, detector.roi_heads.box_predictor
        for weight in (*head.parameters(), *predictor.parameters()):
            if weight.ndim > 1:  # biases stay
                nn.init.normal_(weight, std=0.01)
    return detector
