"""Which of an image's proposals become its regions; R proposals, O object classes."""

import torch
from torch import Tensor

from preprocessing.features.butd.boxes import overlaps

OVERLAP = 0.3
CONFIDENCE = 0.2


def select_confident(boxes_R4: Tensor, scores_RO: Tensor, minimum: int, maximum: int) -> Tensor:
    """Return the proposals chosen by the original code: all confident ones.

    Boxes are thinned out class by class (NMS 0.3). A proposal's confidence is its highest score (R, O) in a class in
    which it remained. Those with a confidence of 0.2 or more are taken, in the order of the proposals; if they are too
    few or too many, the most confident ones instead, in descending order. Boxes are in pixels of the photograph.
    """
    confidence_R = (scores_RO * _kept_in_class(overlaps(boxes_R4), scores_RO)).amax(dim=1)
    sure = torch.nonzero(confidence_R >= CONFIDENCE).flatten()
    if minimum <= len(sure) <= maximum:
        return sure
    count = minimum if len(sure) < minimum else maximum
    return torch.argsort(confidence_R, descending=True, stable=True)[:count]


def _kept_in_class(overlaps_RR: Tensor, scores_RO: Tensor) -> Tensor:
    """(R, O): whether a proposal survives NMS by the scores of a class; all classes take their steps together."""
    covers_RR = overlaps_RR > OVERLAP
    order_RO = torch.argsort(scores_RO, dim=0, descending=True, stable=True)
    classes_O = torch.arange(scores_RO.shape[1], device=scores_RO.device)
    suppressed_OR = torch.zeros(scores_RO.T.shape, dtype=torch.bool, device=scores_RO.device)
    kept_OR = torch.zeros_like(suppressed_OR)
    for next_O in order_RO:
        survives_O = ~suppressed_OR[classes_O, next_O]
        kept_OR[classes_O, next_O] = survives_O
        suppressed_OR |= covers_RR[next_O] & survives_O[:, None]
    return kept_OR.T
