"""Confidence intervals of metrics by bootstrap, and the significance of two models' difference."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.evaluation.ranks import Ranks
from vse_core.evaluation.recall import RetrievalRanks

# Q queries, G groups of queries that are drawn together, R resamples, M metrics; r resamples of a chunk.

RESAMPLES = 1000
RECALLS = {"r01": 1, "r05": 5, "r10": 10}
# Draws held at once: 64 MiB of numbers.
_CHUNK_DRAWS = 2**23


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval (the percentile method of Efron's bootstrap)."""

    low: float
    high: float

    @classmethod
    def of(cls, resampled_R: Tensor) -> "Interval":
        """Return that of a metric's values in resamples."""
        low, high = resampled_R.quantile(torch.tensor([0.025, 0.975], dtype=resampled_R.dtype)).tolist()
        return cls(low, high)


@dataclass(frozen=True)
class MetricDifference:
    """A metric of two models on the same queries; interval and two-sided p-value are of first - second."""

    first: float
    second: float
    interval: Interval
    p_value: float

    @property
    def difference(self) -> float:
        """The first minus the second."""
        return self.first - self.second


def resampled_recalls(
    ranks: Ranks, group_Q: Tensor | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Return R@1, R@5 and R@10 in per cent by name in R resamples of the queries, (R,) in float64.

    Each resample draws as many groups as there are, with replacement. The captions of an image are not independent
    queries: they are drawn together, with their image. ``group_Q`` numbers the group of each query from 0; None makes
    each its own. The same seed draws the same groups for all models and directions.
    """
    hits_QM = torch.stack([ranks.ranks_Q < k for k in RECALLS.values()], dim=1)
    group_Q = torch.arange(len(ranks)) if group_Q is None else group_Q
    means_RM = resampled_means(hits_QM, group_Q, resamples, seed)
    return dict(zip(RECALLS, (100 * means_RM).unbind(1), strict=True))


def resampled_means(values_QM: Tensor, group_Q: Tensor, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """Return the means (R, M), float64, of M values of each query in R resamples of the groups of queries.

    The arguments are those of :func:`resampled_recalls`; a number below the largest may have no query. A resample
    without any query has NaN.
    """
    groups = int(group_Q.max()) + 1
    values_QM = values_QM.double()
    sums_GM = values_QM.new_zeros(groups, values_QM.shape[1]).index_add_(0, group_Q, values_QM)
    sizes_G1 = torch.bincount(group_Q, minlength=groups).double().unsqueeze(1)
    generator = torch.Generator().manual_seed(seed)
    values = []
    for first in range(0, resamples, size := max(1, _CHUNK_DRAWS // groups)):
        drawn_rG = torch.randint(groups, (min(size, resamples - first), groups), generator=generator)
        times_rG = sums_GM.new_zeros(drawn_rG.shape)
        times_rG.scatter_add_(1, drawn_rG, torch.ones_like(times_rG))
        values.append((times_rG @ sums_GM) / (times_rG @ sizes_G1))
    return torch.cat(values)


def resampled_retrieval(ranks: RetrievalRanks, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Tensor]:
    """Return RSUM and both directions' recalls, named as in `RetrievalResult.as_dict`, in resamples (R,) of the images.

    The images of each fold are drawn with their captions.
    """
    folds: dict[str, list[Tensor]] = {}
    for number, fold in enumerate(ranks.each_fold()):
        # Images are drawn alike for both directions, so their recalls may be added.
        for direction, of, image_Q in (
            ("i2t", fold.image_to_text, None),
            ("t2i", fold.text_to_image, fold.image_of_caption),
        ):
            for name, values_R in resampled_recalls(of, image_Q, resamples, seed + number).items():
                folds.setdefault(f"{direction}_{name}", []).append(values_R)
    mean = {name: torch.stack(values).mean(dim=0) for name, values in folds.items()}
    return {"rsum": torch.stack(list(mean.values())).sum(dim=0), **mean}


def retrieval_intervals(ranks: RetrievalRanks, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Interval]:
    """Intervals of RSUM and of the recalls; names as in `RetrievalResult.as_dict`."""
    return {name: Interval.of(values_R) for name, values_R in resampled_retrieval(ranks, resamples, seed).items()}


def compare_retrieval(
    first: RetrievalRanks, second: RetrievalRanks, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, MetricDifference]:
    """Compare RSUM and recalls of two models by a paired bootstrap.

    Ranks that are not of the same images, captions and folds, in the same order, are a ValueError.
    """
    if first.folds != second.folds or not torch.equal(first.captions_B, second.captions_B):
        found = [(len(ranks.captions_B), int(ranks.captions_B.sum()), ranks.folds) for ranks in (first, second)]
        raise ValueError(f"only ranks of the same images, captions and folds can be compared; got {found}")
    values = [ranks.result().as_dict() for ranks in (first, second)]
    drawn = [resampled_retrieval(ranks, resamples, seed) for ranks in (first, second)]
    return {
        name: MetricDifference(values[0][name], values[1][name], *_difference(values_R - drawn[1][name]))
        for name, values_R in drawn[0].items()
    }


def _difference(difference_R: Tensor) -> tuple[Interval, float]:
    """Interval and two-sided p-value of a difference, from its values in resamples."""
    tails = [int((sign * difference_R <= 0).sum()) for sign in (1, -1)]
    # One more in both counts: that no resample turned the sign does not make it impossible.
    return Interval.of(difference_R), min(1.0, 2 * (min(tails) + 1) / (len(difference_R) + 1))
