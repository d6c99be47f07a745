"""Any direction with any relevant items, against a Python sort of every query's own list."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.ranks as ranks_module
from tests.vse_core.evaluation.naive import naive_ranks
from vse_core.evaluation.directions import DIRECTIONS, Direction, rank_direction
from vse_core.evaluation.ranks import RelevantItems


def naive_similarity(
    direction: Direction, members: list[tuple[np.ndarray, np.ndarray]], query: int, item: int
) -> float:
    """Mean over the members of the best pair of views."""
    each = []
    for images, texts in members:
        sides = {"i": images, "t": texts[:, None]}
        views, others = sides[direction[0]][query], sides[direction[-1]][item]
        each.append(max(float(view @ other) for view in views for other in others))
    return sum(each) / len(each)


@settings(max_examples=80)
@given(
    direction=st.sampled_from(DIRECTIONS),
    images=st.integers(2, 6),
    captions=st.integers(2, 8),
    views=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    levels=st.integers(2, 4),
    chunk=st.sampled_from([1, 60, 10**6]),
    seed=st.integers(0, 999),
)
def test_ranks_are_those_of_a_sort(
    direction: Direction, images: int, captions: int, views: list[int], levels: int, chunk: int, seed: int
):
    rng = np.random.default_rng(seed)
    # Small integers make exact ties, in any order of summation; about half of them are negative.
    members = [
        tuple(rng.integers(-levels, levels, shape).astype(np.float32) for shape in ((images, k, 3), (captions, 3)))
        for k in views
    ]
    sizes = {"i": images, "t": captions}
    queries, items = sizes[direction[0]], sizes[direction[-1]]
    asked = sorted(rng.choice(queries, rng.integers(1, queries + 1), replace=False).tolist())
    galleries = [[item for item in range(items) if direction[0] != direction[-1] or item != query] for query in asked]
    true = [set(rng.choice(found, rng.integers(1, len(found) + 1), replace=False).tolist()) for found in galleries]
    pairs = torch.tensor([(row, item) for row, of_row in enumerate(true) for item in of_row])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "CHUNK_ELEMENTS", chunk)
        patch.setattr(ranks_module, "FEWEST_QUERIES", 1)
        ranks = rank_direction(
            [(torch.from_numpy(i), torch.from_numpy(t)) for i, t in members],
            direction,
            RelevantItems.of_pairs(*pairs.unbind(1), len(asked)),
            torch.tensor(asked),
        )
    for row, (query, gallery) in enumerate(zip(asked, galleries, strict=True)):
        # Of three members the mean of float32 is that of the code: integers are added exactly, then divided once.
        scores = [np.float32(naive_similarity(direction, members, query, item)) for item in gallery]
        expected = naive_ranks(scores, [gallery.index(item) for item in true[row]])
        assert (int(ranks.ranks_Q[row]), bool(ranks.tied_Q[row])) == (expected.rank, expected.tied)
        found = int(ranks.relevant_Q[row]), int(ranks.top_Q[row])
        assert found == (gallery[expected.best], gallery[expected.first])


def test_a_query_is_not_in_its_own_gallery():
    texts = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    relevant_items = RelevantItems.of_pairs(torch.tensor([0]), torch.tensor([1]), 1)
    ranks = rank_direction([(torch.ones(1, 2), texts)], "t2t", relevant_items, torch.tensor([0]))
    # Everything else is unlike it; the released code would rank the query before them.
    assert ranks.ranks_Q.tolist() == [1]
    assert ranks.top_Q.tolist() == [2]
