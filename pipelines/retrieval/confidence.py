"""The confidence of the hits of a search in a gallery.

Q queries of V views, B items of K views, S of them as a sample, D embedding, W dimensions that the index keeps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pipelines.retrieval.correction import Correction, relevant_items
from pipelines.retrieval.faiss_index import Found, GalleryIndex, ItemIndex
from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.options import Target
from vse_core.evaluation.calibration import hit_confidence
from vse_core.evaluation.nearest import best_pair_similarities

# Items that stand for the others of a large gallery.
_SAMPLE = 5_000


@dataclass(frozen=True)
class HitConfidence:
    """What tells how likely a hit is relevant: all B items or an even sample of them, and a calibrated softmax.

    `relevant` is the number of items that a query is about.
    """

    index: ItemIndex
    indices_S: Tensor
    vectors_SKW: Tensor
    temperature: float
    relevant: float

    @classmethod
    def of(cls, gallery: Gallery, index: GalleryIndex, correction: Correction | None) -> Mapping[Target, Self]:
        """Return the confidences by the kind of the hits, as far as a gallery and its model's correction have them."""
        if gallery.biases is None or correction is None:
            return {}
        found = {}
        for target, calibration in correction.calibrations.items():
            of_target: ItemIndex = getattr(index, target)
            if items := of_target.facts.items:
                chosen_S = torch.linspace(0, items - 1, min(items, _SAMPLE)).round().long()
                vectors_SKW, relevant = of_target.kept_items(chosen_S), relevant_items(gallery, target)
                found[target] = cls(of_target, chosen_S, vectors_SKW, calibration.temperature, relevant)
        return found

    def of_hits(self, queries_QVD: Tensor, nearest: Sequence[Found]) -> list[list[float]]:
        """Return the confidence of each hit of each query; items that are not hits are counted by the sample's."""
        scores_QS = best_pair_similarities(self.index.kept_queries(queries_QVD), self.vectors_SKW)
        confidences = []
        for found, scores_S in zip(nearest, scores_QS, strict=True):
            scores_k = torch.from_numpy(found.scores)
            others_S = ~torch.isin(self.indices_S, torch.from_numpy(found.indices))
            log_total = (scores_k / self.temperature).logsumexp(0)
            if others_S.any():
                each = (self.index.facts.items - len(scores_k)) / int(others_S.sum())
                log_others = (scores_S[others_S] / self.temperature).logsumexp(0) + math.log(each)
                log_total = torch.logaddexp(log_total, log_others)
            confidences.append(hit_confidence(scores_k, log_total, self.temperature, self.relevant).tolist())
        return confidences
