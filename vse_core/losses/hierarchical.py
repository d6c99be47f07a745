"""Videos and captions on HGR's three levels (event, actions, entities), their similarity, and the loss of it.

B videos, C captions, N frames, M phrases (actions or entities) at most, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vse_core.losses.global_pairs import IMAGES, Block, GlobalPairs, PairLoss, Sums, TotalAndParts
from vse_core.losses.hinge import Negatives, TripletLoss
from vse_core.outputs import ComparedImages, Rows
from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import unit_length

SHARPNESS = 4.0
"""Factor of a phrase's attention to the frames before the softmax (lambda in HGR; 4 in its code)."""


@dataclass(frozen=True, slots=True)
class VideoLevels(ComparedImages):
    """Videos on the three levels, b videos of N frames: events have unit length, and frames are for phrases."""

    events_bD: Tensor
    action_frames_bND: Tensor
    entity_frames_bND: Tensor
    frame_mask_bN: Tensor

    def similarities(self, texts: TextLevels) -> Tensor:
        """Return the similarities (b, C) of every video with every caption, the mean of the levels."""
        return level_similarities(self, texts).mean(dim=0)

    def numbers_per_pair(self, texts: TextLevels) -> int:
        """Return the cosines of a video's frames with a caption's phrases."""
        phrases = texts.action_mask_cA.shape[1] + texts.entity_mask_cE.shape[1]
        return max(1, self.frame_mask_bN.shape[1] * phrases)


@dataclass(frozen=True, slots=True)
class TextLevels(Rows):
    """Captions on the three levels, in unit vectors: c captions, A actions and E entities at most."""

    events_cD: Tensor
    actions_cAD: Tensor
    action_mask_cA: Tensor
    entities_cED: Tensor
    entity_mask_cE: Tensor


class HierarchicalLoss(PairLoss):
    """Push each pair above its negatives, by the mean of event, action and entity similarities (HGR, section 3.3).

    The hinges and arguments are those of :class:`~vse_core.losses.hinge.TripletLoss`. HGR divides by the
    batch (``mean``) and takes the hardest negatives from the first step.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "mean",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__(mask_same_image)
        self.triplet = TripletLoss(margin, negatives, reduction, mask_same_image)

    @staticmethod
    def compare(videos: VideoLevels, texts: TextLevels) -> Tensor:
        """Return the similarities (B, 3, C) on each level."""
        return level_similarities(videos, texts).transpose(0, 1)

    @staticmethod
    def combine(levels_A3C: Tensor) -> Tensor:
        """Return the mean of the levels (A, C)."""
        return levels_A3C.mean(dim=1)

    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """Return the triplet loss; its parts, if it is diagnosed, with the pairs' mean similarity on each level."""
        total, parts = self.triplet.total_and_parts(pairs)
        if self.is_diagnosed:
            with torch.no_grad():
                levels = pairs.sums(_own_levels, (IMAGES,))
            parts |= {name: level / len(pairs) for name, level in levels.items()}
        return total, parts


def _own_levels(block: Block) -> Sums:
    levels_3 = block.own(block.sims_AKC.transpose(0, 1)).sum(dim=1)
    return {f"{level}_similarity": levels_3[place] for place, level in enumerate(("event", "action", "entity"))}


def level_similarities(videos: VideoLevels, texts: TextLevels) -> Tensor:
    """Return the similarities (3, B, C) of every video with every caption: by event, by actions, by entities."""
    events_BD, events_CD = at_least_float32(videos.events_bD), at_least_float32(texts.events_cD)
    with full_precision(events_BD):
        events_BC = events_BD @ events_CD.T
    mask_BN = videos.frame_mask_bN
    actions_BC = phrase_similarities(videos.action_frames_bND, mask_BN, texts.actions_cAD, texts.action_mask_cA)
    entities_BC = phrase_similarities(videos.entity_frames_bND, mask_BN, texts.entities_cED, texts.entity_mask_cE)
    return torch.stack([events_BC, actions_BC, entities_BC])


def phrase_similarities(frames_BND: Tensor, mask_BN: Tensor, phrases_CMD: Tensor, mask_CM: Tensor) -> Tensor:
    """Return the similarity (B, C) of every caption's phrases, of unit length, to every video (HGR, section 3.3).

    A phrase attends to frames by their cosines, of which those below zero count as zero, brought to unit length over
    the frames: ``w = softmax(4 * unit(relu(cos)))``. Its similarity is the cosine with the frames' average by these
    weights; a caption's is the mean over its phrases, and 0 if it has none.

    The averages themselves, of D numbers for each video, caption and phrase, are never made: their inner products with
    the phrase and their lengths follow from the cosines and from the frames' inner products with each other.
    """
    frames_BND, phrases_CMD = at_least_float32(frames_BND), at_least_float32(phrases_CMD)
    captions, phrases = mask_CM.shape
    units_BND = unit_length(frames_BND)
    lengths_B1N = (units_BND * frames_BND).sum(dim=-1).unsqueeze(1)
    padded_B1N = ~mask_BN.unsqueeze(1)
    with full_precision(frames_BND):
        cosines_BPN = phrases_CMD.flatten(0, 1) @ units_BND.transpose(1, 2)
        among_frames_BNN = frames_BND @ frames_BND.transpose(1, 2)
        seen_BPN = unit_length(cosines_BPN.masked_fill(padded_B1N, 0.0).clamp(min=0))
        weights_BPN = (SHARPNESS * seen_BPN).masked_fill(padded_B1N, -torch.inf).softmax(dim=-1)
        squares_BP = ((weights_BPN @ among_frames_BNN) * weights_BPN).sum(dim=-1)
    products_BP = (weights_BPN * cosines_BPN * lengths_B1N).sum(dim=-1)
    # As in unit_length: the derivative of the root is infinite at zero, where frames cancel each other out.
    found_BP = products_BP / (squares_BP.masked_fill(squares_BP <= 0, 1.0).sqrt() + 1e-8)
    found_BCM = found_BP.unflatten(1, (captions, phrases)) * mask_CM
    found_BC: Tensor = found_BCM.sum(dim=-1) / mask_CM.sum(dim=-1).clamp(min=1)
    return found_BC
