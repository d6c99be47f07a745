"""R-precision and mAP@R: how many of a query's R relevant items are among its first R, and how early."""

from collections.abc import Callable

import torch
from torch import Tensor

from vse_core.evaluation.ranks import RelevantItems, query_runs

# Q queries, N items of the gallery, R relevant items of a query; q those of a chunk.


def query_precisions(
    similarities: Callable[[slice], Tensor], relevant_items: RelevantItems, counts_Q: Tensor, items: int, views: int = 1
) -> Tensor:
    """Return R-precision and average precision at R of each query, (Q, 2) in float64, from 0 to 1.

    With P(r) the share of relevant items among the first r, R-precision is P(R), and the average precision the sum of
    P(r) over the places r <= R of relevant items, divided by R (Musgrave et al. 2020, "A Metric Learning Reality
    Check", section 3.2). R is ``counts_Q``, with relevant items that the gallery lacks, and that are never found. Of
    equally similar items the later one comes first, and a relevant item whose similarity is not a number comes last, as
    in `rank_queries`, whose arguments and errors the others are.
    """
    return torch.cat(
        [
            _precisions(similarities(run), *relevant_items.of(run), counts_Q[run])
            for run in query_runs(relevant_items, items, views)
        ]
    )


def _precisions(sims_qN: Tensor, query_P: Tensor, item_P: Tensor, counts_q: Tensor) -> Tensor:
    is_relevant_qN = torch.zeros_like(sims_qN, dtype=torch.bool)
    is_relevant_qN[query_P, item_P] = True
    sims_qN = sims_qN.masked_fill(is_relevant_qN & sims_qN.isposinf(), -torch.inf)
    # A stable sort leaves equals as they stand, in the flipped order the later one first.
    order_qN = sims_qN.flip(1).sort(dim=1, descending=True, stable=True).indices
    most = min(int(counts_q.max()), sims_qN.shape[1])
    hits_qR = is_relevant_qN.flip(1).gather(1, order_qN[:, :most]).double()
    place_R = torch.arange(1, most + 1, device=sims_qN.device)
    hits_qR = hits_qR * (place_R <= counts_q.unsqueeze(1))
    average_q = (hits_qR * hits_qR.cumsum(dim=1) / place_R).sum(dim=1)
    return torch.stack([hits_qR.sum(dim=1), average_q], dim=1) / counts_q.unsqueeze(1)
