"""Ranks of single queries, against a Python sort of every query's own list: ties, folds, several relevant items."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.ranks as ranks_module
import vse_core.evaluation.recall as recall
from tests.vse_core.evaluation.naive import naive_ranks
from vse_core.evaluation.ranks import Ranks, RelevantItems, nan_as_worst, rank_queries
from vse_core.evaluation.recall import rank_retrieval


def rows(ranks: Ranks) -> list[tuple[int, bool, int, float, int, float]]:
    return list(zip(*(values.tolist() for values in vars(ranks).values()), strict=True))


@settings(max_examples=60)
@given(
    folds=st.sampled_from([1, 2, 3]),
    each=st.integers(1, 4),
    views=st.integers(1, 3),
    levels=st.integers(1, 4),
    tile=st.sampled_from([1, 8, 30, 10**6]),
    seed=st.integers(0, 999),
)
def test_both_ways_within_folds_and_in_the_whole(folds: int, each: int, views: int, levels: int, tile: int, seed: int):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, folds * each).tolist()
    # Small integers make exact ties, in any order of summation.
    images = rng.integers(0, levels, (len(counts), views, 3)).astype(np.float32)
    texts = rng.integers(0, levels, (sum(counts), 3)).astype(np.float32)
    sims = np.einsum("bkd,cd->bkc", images, texts).max(axis=1)
    owner = np.repeat(np.arange(len(counts)), counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "TILE_ELEMENTS", tile)
        found = rank_retrieval([(torch.from_numpy(images), torch.from_numpy(texts))], counts, (1, folds))
    for cut, ranks in found.items():
        # What is outside a query's fold is behind everything.
        same = (np.arange(len(counts)) * cut // len(counts))[:, None] == (owner * cut // len(counts))[None, :]
        inside = np.where(same, sims, -1.0)
        expected = [naive_ranks(inside[i].tolist(), set(np.flatnonzero(owner == i))) for i in range(len(counts))]
        # Ranks count within the fold, whatever lies behind it.
        assert rows(ranks.image_to_text) == expected
        assert rows(ranks.text_to_image) == [naive_ranks(inside[:, c].tolist(), {owner[c]}) for c in range(len(owner))]


@settings(max_examples=60)
@given(
    queries=st.integers(1, 9),
    items=st.integers(1, 12),
    levels=st.integers(1, 4),
    chunk=st.sampled_from([1, 30, 10**6]),
    seed=st.integers(0, 999),
)
def test_any_items_may_be_true(queries: int, items: int, levels: int, chunk: int, seed: int):
    rng = np.random.default_rng(seed)
    sims = rng.integers(0, levels, (queries, items)).astype(np.float32)
    true = [set(rng.choice(items, rng.integers(1, items + 1), replace=False).tolist()) for _ in range(queries)]
    pairs = [(query, item) for query, items_of in enumerate(true) for item in items_of]
    rng.shuffle(pairs)
    query_P, item_P = torch.tensor(pairs + pairs[:3]).unbind(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "CHUNK_ELEMENTS", chunk)
        patch.setattr(ranks_module, "FEWEST_QUERIES", 2)
        found = rank_queries(
            lambda run: torch.from_numpy(sims)[run], RelevantItems.of_pairs(query_P, item_P, queries), items
        )
    assert rows(found) == [naive_ranks(row.tolist(), of_row) for row, of_row in zip(sims, true, strict=True)]


def test_what_is_not_a_number_is_first_among_the_false_and_last_among_the_true():
    nan = float("nan")
    sims = torch.tensor([[nan, 0.5, 0.1, 0.9], [0.3, nan, 0.1, 0.2]])
    relevant_items = RelevantItems.of_pairs(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2)
    found = rank_queries(lambda run: nan_as_worst(sims[run].clone()), relevant_items, 4)
    # The query's other relevant item stands behind 0.9 and behind what is not a number.
    assert found.ranks_Q.tolist() == [2, 4]
    assert found.relevant_Q.tolist()[0] == 1


def test_similarities_in_float64_are_not_rounded():
    images = torch.tensor([[1.0 + 1e-12], [1.0]], dtype=torch.float64)
    found = rank_retrieval([(images, torch.ones(2, 1, dtype=torch.float64))], 1)[1]
    assert found.text_to_image.ranks_Q.tolist() == [0, 1]
    assert not found.text_to_image.tied_Q.any()


@pytest.mark.parametrize(
    ("pairs", "queries", "message"),
    [
        ([(0, 1), (2, 0)], 3, "query 1 has no relevant item"),
        ([(0, 4)], 1, "indices from 0 to 3; got 4 to 4"),
    ],
)
def test_queries_that_nothing_answers_are_refused(pairs: list[tuple[int, int]], queries: int, message: str):
    query_P, item_P = torch.tensor(pairs).unbind(1)
    with pytest.raises(ValueError, match=message):
        rank_queries(lambda run: torch.zeros(1, 4), RelevantItems.of_pairs(query_P, item_P, queries), 4)
