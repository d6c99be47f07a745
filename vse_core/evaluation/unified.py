"""Unified text-to-image retrieval: words, phrases and sentences as queries, in the images and in their regions."""

import torch
from torch import Tensor

from vse_core.evaluation.ranks import RelevantItems, query_runs
from vse_core.similarity import similarity_matrix

# B images, Q queries, K views, D embedding; q queries of a chunk.

# Numbers that sorting holds for one similarity.
_SORTED_AT_ONCE = 4


def evaluate_unified(queries_QD: Tensor, images_BKD: Tensor, relevant_images: RelevantItems) -> dict[str, float]:
    """Rank all images for every query and average the precision over its relevant images (UniVSE, section 4.3).

    Each kind of query is one call: objects ("clock"), attributes ("white clock"), relations ("clock on wall"). Differs
    from the paper, which draws pairs of image and component at random: here every distinct component is one query, and
    all images of which any caption holds it are relevant (or, for objects, those in which a detection data set labels
    it).

    Returns ``map`` and its expectation for a random ranking ``map_chance``, in per cent, the numbers of ``queries`` and
    ``images``, and the mean number of a query's ``relevant_images``; arguments are :func:`average_precisions`'s.
    """
    precisions_Q = average_precisions(queries_QD, images_BKD, relevant_images)
    return {
        "map": 100.0 * precisions_Q.mean().item(),
        "map_chance": 100.0 * chance_average_precision(relevant_images.counts, len(images_BKD)).mean().item(),
        "queries": float(len(queries_QD)),
        "images": float(len(images_BKD)),
        "relevant_images": relevant_images.counts.double().mean().item(),
    }


def average_precisions(queries_QD: Tensor, images_BKD: Tensor, relevant_images: RelevantItems) -> Tensor:
    """Return the average precision (Q,) of every query, from 0 to 1 in float64.

    AP is the mean, over the relevant images, of the precision at each: the share of relevant ones among all images that
    are at least as similar, as in scikit-learn's `average_precision_score`; the order of equally similar images plays
    no part. A similarity that is not a number counts against the model: a relevant image comes last, another first.
    Queries and images, (B, K, D) or (B, D), are unit vectors; similarity is the maximum over views. ValueErrors are
    those of :func:`~vse_core.evaluation.ranks.rank_queries`.
    """
    images_BKD = images_BKD.unsqueeze(1) if images_BKD.dim() == 2 else images_BKD
    precisions = []
    for run in query_runs(relevant_images, len(images_BKD), _SORTED_AT_ONCE * images_BKD.shape[1]):
        sims_qB = similarity_matrix(images_BKD, queries_QD[run]).T.contiguous()
        relevant_qB = torch.zeros(sims_qB.shape, dtype=torch.bool)
        relevant_qB[relevant_images.of(run)] = True
        precisions.append(_average_precisions(sims_qB, relevant_qB))
    return torch.cat(precisions)


def chance_average_precision(relevant_Q: Tensor, images: int) -> Tensor:
    """Expected average precision (Q,) of a random ranking of B images, exactly.

    With R of B images relevant, rank k holds a relevant one with probability R/B, and of the k - 1 before it
    (k - 1)(R - 1)/(B - 1) are expected to be relevant. Summing the precision over k gives
    ``(H + (R - 1)/(B - 1) * (B - H)) / B`` with the harmonic number H = 1 + 1/2 + ... + 1/B.
    """
    harmonic = torch.arange(1, images + 1, dtype=torch.float64).reciprocal().sum()
    others_Q = (relevant_Q.double() - 1) / max(images - 1, 1)
    return (harmonic + others_Q * (images - harmonic)) / images


def relevance(queries_QD: Tensor, regions_ND: Tensor, temperature: float = 0.1) -> Tensor:
    """Spread queries (Q, D) over the regions (N, D) of one image: ``softmax_n(s(query, region_n) / temperature)``.

    This is UniVSE's equation (2), (Q, N) in float32; the loss has it at temperature 1, the paper's figure 6 at 0.1. The
    smaller the temperature, which must be positive, the more of the map lies on the best region.
    """
    # Every region is one "image" with a single view.
    return (similarity_matrix(regions_ND.unsqueeze(1), queries_QD).T / temperature).softmax(dim=1)


def _average_precisions(sims_qB: Tensor, relevant_qB: Tensor) -> Tensor:
    worst_qB = torch.where(relevant_qB, -float("inf"), float("inf")).to(sims_qB.dtype)
    sorted_qB, order_qB = torch.where(sims_qB.isnan(), worst_qB, sims_qB).sort(dim=1, descending=True)
    found_qB = relevant_qB.gather(1, order_qB)
    # Number of images at least as similar as the one at each rank: up to the last of its equals.
    distance_qB = -sorted_qB
    reached_qB = torch.searchsorted(distance_qB, distance_qB, right=True)
    hits_qB = found_qB.cumsum(dim=1).gather(1, reached_qB - 1)
    return torch.where(found_qB, hits_qB.double() / reached_qB, 0.0).sum(dim=1) / found_qB.sum(dim=1)
