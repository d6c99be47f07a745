"""Ensembles: the metrics of the mean of the members' similarity matrices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.recall as recall
from vse_core.evaluation.recall import evaluate_retrieval, rank_retrieval


def as_one_model(mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings whose inner products are a given matrix, bit for bit: its rows, and the unit vectors."""
    return mean, torch.eye(mean.shape[1])


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    views=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    levels=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_the_mean_matrix_decides_ties_included(counts: list[int], views: list[int], levels: int, seed: int):
    rng = np.random.default_rng(seed)
    members, matrices = [], []
    for member, view_count in enumerate(views):
        # Small integers make exact ties, in any order of summation; each member has its own width.
        images = torch.from_numpy(rng.integers(0, levels, (len(counts), view_count, 2 + member)).astype(np.float32))
        texts = torch.from_numpy(rng.integers(0, levels, (sum(counts), 2 + member)).astype(np.float32))
        members.append((images, texts))
        matrices.append([[max(float(view @ text) for view in image) for text in texts] for image in images])
    mean = torch.tensor(matrices).sum(dim=0) / len(views)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "TILE_ELEMENTS", 12)
        assert rank_retrieval(members, counts)[1].result() == evaluate_retrieval(*as_one_model(mean), counts)


@pytest.mark.parametrize(
    "members", [[], [(torch.ones(2, 1, 3), torch.ones(10, 3)), (torch.ones(2, 1, 3), torch.ones(9, 3))]]
)
def test_members_must_share_images_and_captions(members: list[tuple[torch.Tensor, torch.Tensor]]):
    with pytest.raises(ValueError, match="members of an ensemble share images and captions"):
        rank_retrieval(members)
