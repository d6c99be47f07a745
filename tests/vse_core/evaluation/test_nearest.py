"""Exact search, against a full sort of every similarity."""

import pytest
import torch
from torch import Tensor

from vse_core.evaluation.nearest import top_k


def naive(queries_QVD: Tensor, gallery_BKD: Tensor, k: int) -> list[list[tuple[float, int]]]:
    found = []
    for query_VD in queries_QVD:
        scores = [(max(float(v @ w) for v in query_VD for w in item_KD), i) for i, item_KD in enumerate(gallery_BKD)]
        found.append(sorted(scores, key=lambda pair: (-pair[0], -pair[1]))[:k])
    return found


@pytest.mark.parametrize("chunk_size", [3, 4, 100])
@pytest.mark.parametrize("views", [(1, 1), (1, 3), (2, 3)])
def test_top_k_is_that_of_a_full_sort_with_ties_between_chunks(chunk_size: int, views: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    # Small integers: every product is exact, and equal similarities are common.
    queries_QVD = torch.randint(-2, 3, (5, views[0], 4), generator=generator).float()
    gallery_BKD = torch.randint(-2, 3, (11, views[1], 4), generator=generator).float()
    similarities, indices = top_k(queries_QVD, gallery_BKD, 4, chunk_size)
    pairs = [list(zip(s, i, strict=True)) for s, i in zip(similarities.tolist(), indices.tolist(), strict=True)]
    assert pairs == naive(queries_QVD, gallery_BKD, 4)
