"""Similarities of videos and captions on three levels (HGR).

B videos, C captions, N frames, M phrases (actions or entities) at most, D dimensions.
"""

import torch
from torch import Tensor

from vse_core.encoders.normalize import unit_length
from vse_core.outputs import TextLevels, VideoLevels
from vse_core.precision import at_least_float32, full_precision

SHARPNESS = 4.0
"""Factor of a phrase's attention to the frames before the softmax (lambda in HGR; 4 in its code)."""


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
    weights; a caption's is the mean over its phrases, and 0 where it has none.

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
