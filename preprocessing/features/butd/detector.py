"""The complete network, from pixels to the regions of each image.

B images, R proposals of an image, of which the last may be padding, N regions, F feature width; O object classes and P
attributes without "none", which is the last of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import roi_pool

from preprocessing.features.butd.backbone import Backbone, Sizes, fold, stage
from preprocessing.features.butd.boxes import select_confident, uploaded
from preprocessing.features.butd.proposals import STRIDE, ProposalNetwork, propose
from preprocessing.features.butd.resize import Pixels

POOLED = 14
# Regions in one pass of the last stage, on a CPU and on a GPU: a pooled region takes 0.8 MB, and the stage 6 MB.
_REGIONS_AT_ONCE = (100, 600)


class Predictor(nn.Module):
    """Linear layers on a region's feature. The attribute is predicted from it and an embedding of the object."""

    def __init__(self, features: int, objects: int, attributes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(features, objects + 1)
        self.bbox_pred = nn.Linear(features, 4 * objects)
        self.cls_embedding = nn.Embedding(objects + 1, features // 8)
        self.fc_attr = nn.Linear(features + features // 8, features // 4)
        self.attr_score = nn.Linear(features // 4, attributes + 1)

    def attributes(self, features: Tensor, objects: Tensor) -> Tensor:
        """Logits (..., P + 1) by features (..., F) and the objects' logits (..., O + 1); "none" is an object here."""
        embedded = self.cls_embedding(objects.argmax(dim=-1))
        hidden = functional.relu(self.fc_attr(torch.cat([features, embedded], dim=-1)))
        logits: Tensor = self.attr_score(hidden)
        return logits


class RegionHeads(nn.Module):
    """The last stage of the ResNet, run on each region by itself, and the predictor."""

    def __init__(self, width: int, objects: int, attributes: int) -> None:
        super().__init__()
        # Dilated instead of strided: the 14 x 14 cells remain.
        self.res5 = stage(16 * width, 8 * width, blocks=3, stride=1, dilation=2)
        self.box_predictor = Predictor(32 * width, objects, attributes)

    def forward(self, maps_BFHW: Tensor, boxes_BR4: Tensor, counts: Sequence[int]) -> Tensor:
        """The features (B, R, 32 * width) float32 of the images' regions: averages over 14 x 14 cells, never negative.

        Each region, in pixels of the resized image, is cut into 14 x 14 bins of whole cells, of which the maximum is
        taken (Girshick, Fast R-CNN, section 2.1: RoIPool with rounded corners, not RoIAlign). `counts` are those of the
        images' regions; behind the last one are zeros.
        """
        maps_BFHW, images = maps_BFHW.float().contiguous(), enumerate(zip(boxes_BR4, counts, strict=True))
        boxes_R5 = torch.cat([functional.pad(boxes_R4[:count], (1, 0), value=row) for row, (boxes_R4, count) in images])
        parts = boxes_R5.split(_REGIONS_AT_ONCE[boxes_R5.is_cuda])
        features_RF = torch.cat([self._pooled(maps_BFHW, part_R5) for part_R5 in parts])
        return pad_sequence(features_RF.split(list(counts)), batch_first=True)

    def _pooled(self, maps_BFHW: Tensor, boxes_R5: Tensor) -> Tensor:
        """The features (R, F) of boxes (R, 5), of which the first column tells the image."""
        dtype = next(self.res5.parameters()).dtype
        x_RFHW: Tensor = roi_pool(maps_BFHW, boxes_R5, POOLED, 1 / STRIDE)
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
        """Let convolutions, normalisation included, compute in a type; boxes, scores and averages stay in float32."""
        self.apply(fold)
        self.backbone.to(dtype)
        self.proposal_generator.rpn_head.to(dtype)
        self.roi_heads.res5.to(dtype)

    @torch.inference_mode()
    def forward(self, images: Sequence[Pixels]) -> list[Regions]:
        """The regions of each image, in the host's memory; the sizes of the images may differ."""
        maps_BFHW, cells = self.maps(images)
        proposals_BR4, counts = self.proposals(maps_BFHW, cells, images)
        regions, counts_B = self.select(self.roi_heads(maps_BFHW, proposals_BR4, counts), proposals_BR4, counts, images)
        regions = {name: values.to("cpu", non_blocking=True) for name, values in regions.items()}
        # What is asked for last is the last to be there: the copies are by then.
        chosen = enumerate(counts_B.tolist())
        return [{name: values[row, :count] for name, values in regions.items()} for row, count in chosen]

    def maps(self, images: Sequence[Pixels]) -> tuple[Tensor, Sizes]:
        """The feature maps of a padded batch, and the height and width in cells of each."""
        weight = next(self.backbone.parameters())
        sizes = [image.values.shape[1:] for image in images]
        height, width = (max(sides) for sides in zip(*sizes, strict=True))
        batch = torch.zeros((len(images), 3, height, width), pin_memory=weight.is_cuda)
        for row, image in zip(batch, images, strict=True):
            row[:, : image.values.shape[1], : image.values.shape[2]] = torch.from_numpy(image.values)
        batch = batch.to(weight.device, non_blocking=True).to(weight.dtype, memory_format=torch.channels_last)
        maps: tuple[Tensor, Sizes] = self.backbone(batch, sizes)
        return maps

    def proposals(self, maps_BFHW: Tensor, cells: Sizes, images: Sequence[Pixels]) -> tuple[Tensor, list[int]]:
        """The proposals of each image (B, R, 4), in pixels of the resized image, and how many they are."""
        logits_BHWA, deltas_BHWA4 = self.proposal_generator.rpn_head(maps_BFHW)
        sizes, scales = [image.values.shape[1:] for image in images], [image.scale for image in images]
        return propose(logits_BHWA, deltas_BHWA4, cells, sizes, scales)

    def select(
        self, features_BRF: Tensor, proposals_BR4: Tensor, counts: Sequence[int], images: Sequence[Pixels]
    ) -> tuple[Regions, Tensor]:
        """The regions chosen of the proposals of each image, all as (B, N, ...), and how many of N are an image's."""
        scales_B11 = uploaded([[[image.scale]] for image in images], features_BRF.device)
        boxes_BR4 = proposals_BR4[:, : features_BRF.shape[1]] / scales_B11
        objects_BRO = self.roi_heads.box_predictor.cls_score(features_BRF)
        # Only these probabilities count, but "none" takes its share of them.
        scores_BRO = objects_BRO.softmax(dim=2)[:, :, :-1]
        chosen_BN, counts_B = select_confident(boxes_BR4, scores_BRO, counts, self._minimum, self._maximum)
        found = (features_BRF, boxes_BR4, objects_BRO, scores_BRO)
        features, boxes, objects, scores = (values.take_along_dim(chosen_BN[:, :, None], dim=1) for values in found)
        regions = {"features": features, "boxes": boxes}
        regions["object_scores"], regions["objects"] = scores.max(dim=2)
        scores = self.roi_heads.box_predictor.attributes(features, objects).softmax(dim=2)[:, :, :-1]
        regions["attribute_scores"], regions["attributes"] = scores.max(dim=2)
        return regions, counts_B


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
