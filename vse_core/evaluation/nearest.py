"""Exact nearest-neighbour search over embeddings with several views."""

import torch
from torch import Tensor


def best_pair_similarities(queries_QVD: Tensor, gallery_BKD: Tensor) -> Tensor:
    """Return similarities (Q, B) in float32: the best pair of a query's V and an item's K views (MV-VSE, section 3)."""
    return torch.einsum("qvd,bkd->qbvk", queries_QVD.float(), gallery_BKD.float()).amax(dim=(-2, -1))


def top_k(queries_QVD: Tensor, gallery_BKD: Tensor, k: int, chunk_size: int = 8192) -> tuple[Tensor, Tensor]:
    """Find the k most similar gallery items of each query, best first: similarities (Q, k) and indices (Q, k).

    Queries have V views and items K. Of equally similar items the later one comes first, as in `evaluate_retrieval`.
    The gallery is read in chunks, so the working memory does not grow with its size. If k is larger than the gallery,
    all of it is returned.
    """
    best_QM = torch.empty((len(queries_QVD), 0), device=gallery_BKD.device)
    index_QM = torch.empty((len(queries_QVD), 0), dtype=torch.int64, device=gallery_BKD.device)
    for start in range(0, len(gallery_BKD), chunk_size):
        scores_QB = best_pair_similarities(queries_QVD, gallery_BKD[start : start + chunk_size])
        chosen_QM = _best_of_chunk(scores_QB, k)
        # Later items stand first, and a stable sort leaves equals as they stand.
        merged_QM = torch.cat([scores_QB.gather(1, chosen_QM), best_QM], dim=1)
        merged_index_QM = torch.cat([chosen_QM + start, index_QM], dim=1)
        sorted_QM, order_QM = merged_QM.sort(dim=1, descending=True, stable=True)
        best_QM, index_QM = sorted_QM[:, :k], merged_index_QM.gather(1, order_QM[:, :k])
    return best_QM, index_QM


def _best_of_chunk(scores_QB: Tensor, k: int) -> Tensor:
    """Return the places of each row's k best, of equals the later ones; the last place comes first."""
    values_Qk, places_Qk = scores_QB.topk(min(k, scores_QB.shape[1]), dim=1)
    # Which of several equals torch.topk takes is open: rows whose last one has equals outside are sorted instead.
    is_open_Q = (scores_QB >= values_Qk[:, -1:]).sum(dim=1) > values_Qk.shape[1]
    if is_open_Q.any():
        order = scores_QB[is_open_Q].flip(1).sort(dim=1, descending=True, stable=True).indices
        places_Qk[is_open_Q] = scores_QB.shape[1] - 1 - order[:, : places_Qk.shape[1]]
    return places_Qk.sort(dim=1, descending=True).values
