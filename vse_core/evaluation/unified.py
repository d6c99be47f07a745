"""Unified text-to-image retrieval: words, phrases and sentences as queries, each with several relevant images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vse_core.similarity import similarity_matrix

# B images, Q queries, K views, D embedding, R relevant images of all queries together; q queries of a chunk.

# Similarities held at once; 16 MiB in float32, and the sort needs several times that.
CHUNK_ELEMENTS = 2**22


@dataclass(frozen=True)
class UnifiedResult:
    """Mean average precision of one kind of query, and its expectation for a random ranking (`chance`), in per cent.

    `relevant_images` is the mean number of relevant images of a query.
    """

    mean_average_precision: float
    chance: float
    queries: int
    images: int
    relevant_images: float

    def as_dict(self) -> dict[str, float]:
        """Flat names and values: ``map``, ``map_chance``, ``queries``, ``images``, ``relevant_images``."""
        return {
            "map": self.mean_average_precision,
            "map_chance": self.chance,
            "queries": float(self.queries),
            "images": float(self.images),
            "relevant_images": self.relevant_images,
        }


def evaluate_unified(
    queries_QD: Tensor, images_BKD: Tensor, relevant_images_R: Tensor, first_relevant_Q1: Tensor
) -> UnifiedResult:
    """Rank all images for every query and average the precision over its relevant images (UniVSE, section 4.3).

    UniVSE reports one figure a kind of query: objects ("clock"), attributes ("white clock"), relations ("clock on
    wall"); each is one call. Differs from the paper, which draws pairs of image and component at random: here every
    distinct component is one query, and all images of which any caption holds it are relevant (or, for objects, those
    in which a detection data set labels it). Compare it with `chance`: common components have many relevant images.

    Args:
        queries_QD: (Q, D) unit vectors.
        images_BKD: (B, K, D) unit vectors, K views; similarity is the maximum over views. (B, D) is taken as K = 1.
        relevant_images_R: (R,) indices of images: those relevant to query 0, then those relevant to query 1, and so on.
        first_relevant_Q1: (Q + 1,) where each query's run in `relevant_images_R` begins, and R at the end.

    Raises:
        ValueError: there is no query, a query has no relevant image or names one twice, or an index is out of range.
    """
    precisions_Q = average_precisions(queries_QD, images_BKD, relevant_images_R, first_relevant_Q1)
    counts_Q = first_relevant_Q1.diff()
    return UnifiedResult(
        mean_average_precision=100.0 * precisions_Q.mean().item(),
        chance=100.0 * chance_average_precision(counts_Q, len(images_BKD)).mean().item(),
        queries=len(queries_QD),
        images=len(images_BKD),
        relevant_images=counts_Q.double().mean().item(),
    )


def average_precisions(
    queries_QD: Tensor, images_BKD: Tensor, relevant_images_R: Tensor, first_relevant_Q1: Tensor
) -> Tensor:
    """Return the average precision (Q,) of every query, from 0 to 1 in float64; arguments as in `evaluate_unified`.

    AP is the mean, over the relevant images, of the precision at each: the share of relevant ones among all images that
    are at least as similar, as in scikit-learn's `average_precision_score`; the order of equally similar images plays
    no part. A similarity that is not a number counts against the model: a relevant image comes last, another first.
    """
    images_BKD = images_BKD.unsqueeze(1) if images_BKD.dim() == 2 else images_BKD
    _check_relevance(len(queries_QD), len(images_BKD), relevant_images_R, first_relevant_Q1)
    counts_Q = first_relevant_Q1.diff()
    query_of_R = torch.repeat_interleave(torch.arange(len(queries_QD)), counts_Q)
    size = max(1, CHUNK_ELEMENTS // images_BKD.shape[:2].numel())
    precisions = []
    for start in range(0, len(queries_QD), size):
        sims_qB = similarity_matrix(images_BKD, queries_QD[start : start + size]).T.contiguous()
        here = slice(int(first_relevant_Q1[start]), int(first_relevant_Q1[min(start + size, len(queries_QD))]))
        relevant_qB = torch.zeros(sims_qB.shape, dtype=torch.bool)
        relevant_qB[query_of_R[here] - start, relevant_images_R[here]] = True
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


def _average_precisions(sims_qB: Tensor, relevant_qB: Tensor) -> Tensor:
    worst_qB = torch.where(relevant_qB, -float("inf"), float("inf")).to(sims_qB.dtype)
    sorted_qB, order_qB = torch.where(sims_qB.isnan(), worst_qB, sims_qB).sort(dim=1, descending=True)
    found_qB = relevant_qB.gather(1, order_qB)
    # Number of images at least as similar as the one at each rank: up to the last of its equals.
    distance_qB = -sorted_qB
    reached_qB = torch.searchsorted(distance_qB, distance_qB, right=True)
    hits_qB = found_qB.cumsum(dim=1).gather(1, reached_qB - 1)
    return torch.where(found_qB, hits_qB.double() / reached_qB, 0.0).sum(dim=1) / found_qB.sum(dim=1)


def _check_relevance(queries: int, images: int, relevant_images_R: Tensor, first_relevant_Q1: Tensor) -> None:
    if not queries:
        raise ValueError("nothing to evaluate: there are no queries")
    ends = (int(first_relevant_Q1[0]), int(first_relevant_Q1[-1])) if len(first_relevant_Q1) else ()
    if len(first_relevant_Q1) != queries + 1 or ends != (0, len(relevant_images_R)):
        raise ValueError(
            f"{queries} queries need {queries + 1} starts from 0 to {len(relevant_images_R)}, the number of relevant "
            f"images; got {len(first_relevant_Q1)} starts with the ends {ends}"
        )
    counts_Q = first_relevant_Q1.diff()
    if int(counts_Q.min()) < 1:
        query = int(counts_Q.argmin())
        raise ValueError(f"query {query} has no relevant image; leave out queries that nothing can answer")
    if int(relevant_images_R.min()) < 0 or int(relevant_images_R.max()) >= images:
        raise ValueError(
            f"relevant images must be indices from 0 to {images - 1}; got {int(relevant_images_R.min())} "
            f"to {int(relevant_images_R.max())}"
        )
    keys_R = torch.repeat_interleave(torch.arange(queries), counts_Q) * images + relevant_images_R
    if len(keys_R.unique()) != len(keys_R):
        raise ValueError("a query names the same relevant image twice; give each image once a query")
