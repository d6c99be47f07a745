"""Retrieval metrics against NumPy's of a sort of each query's own list, ties included."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.recall as recall
from tests.vse_core.evaluation.naive import naive_ranks
from vse_core.evaluation.recall import chance_rsum, evaluate_retrieval


def check(direction: recall.DirectionMetrics, ranks: list[int]) -> None:
    for name, k in (("r01", 1), ("r05", 5), ("r10", 10)):
        assert getattr(direction, name) == pytest.approx(100 * np.mean([rank < k for rank in ranks]))
    assert direction.median_rank == np.floor(np.median(ranks)) + 1
    assert direction.mean_rank == pytest.approx(np.mean(ranks) + 1)


@settings(max_examples=40)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=11),
    views=st.integers(1, 3),
    levels=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_against_a_sort_with_many_ties(counts: list[int], views: int, levels: int, seed: int):
    rng = np.random.default_rng(seed)
    # Small integers make exact ties, in any order of summation.
    images = rng.integers(0, levels, (len(counts), views, 3)).astype(np.float32)
    texts = rng.integers(0, levels, (sum(counts), 3)).astype(np.float32)
    sims = np.einsum("bkd,cd->bkc", images, texts).max(axis=1)
    owner = np.repeat(np.arange(len(counts)), counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "TILE_ELEMENTS", 12)
        result = evaluate_retrieval(torch.from_numpy(images), torch.from_numpy(texts), counts)
    check(result.image_to_text, [naive_ranks(row, np.flatnonzero(owner == i)).rank for i, row in enumerate(sims)])
    check(result.text_to_image, [naive_ranks(row, [owner[c]]).rank for c, row in enumerate(sims.T)])


def test_perfect_and_collapsed_models():
    images = torch.eye(12)
    texts = images.repeat_interleave(5, dim=0)
    perfect = evaluate_retrieval(images, texts)
    assert perfect.rsum == pytest.approx(600)
    assert perfect.image_to_text.median_rank == perfect.text_to_image.mean_rank == 1
    collapsed = evaluate_retrieval(torch.ones(12, 4) / 2, torch.ones(60, 4) / 2)
    assert collapsed.image_to_text.ties == 12
    assert collapsed.text_to_image.ties == 60


@pytest.mark.parametrize("side", ["images", "texts", "both"])
def test_a_model_of_nan_is_last_not_first(side: str):
    nan, unit = torch.full((12, 4), float("nan")), torch.eye(4).repeat(3, 1)
    images = unit if side == "texts" else nan
    texts = (unit if side == "images" else nan).repeat_interleave(5, dim=0)
    result = evaluate_retrieval(images, texts)
    assert result.rsum == 0
    assert result.image_to_text.mean_rank > 55
    assert result.text_to_image.mean_rank > 11


def test_duplicates_in_a_gallery_tie_exactly():
    generator = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(512, generator=generator), dim=0)
    texts = torch.nn.functional.normalize(torch.randn(1003, 512, generator=generator), dim=-1)
    texts[1::2] = texts[1]
    result = evaluate_retrieval(image.expand(1003, 512), texts, captions_per_image=1)
    assert result.text_to_image.ties == 1003


def test_folds_average_contiguous_parts():
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(20, 1, 6, generator=generator)
    texts = images.squeeze(1).repeat_interleave(5, dim=0) + 0.8 * torch.randn(100, 6, generator=generator)
    folds = [evaluate_retrieval(images[i : i + 4], texts[5 * i : 5 * i + 20]) for i in range(0, 20, 4)]
    result = evaluate_retrieval(images, texts, folds=5)
    assert result.rsum == pytest.approx(np.mean([fold.rsum for fold in folds]))
    assert result.image_to_text.mean_rank == pytest.approx(np.mean([f.image_to_text.mean_rank for f in folds]))
    assert result.as_dict()["t2i_r05"] == pytest.approx(np.mean([f.text_to_image.r05 for f in folds]))


@pytest.mark.parametrize(
    ("images", "texts", "options", "message"),
    [
        (3, 14, {}, "do not fit"),
        (3, 15, {"folds": 2}, "cannot be cut into 2 folds"),
        (3, 15, {"captions_per_image": [5, 10, 0]}, "none may be below 1"),
        (0, 0, {}, "nothing to evaluate"),
    ],
)
def test_misfits_are_refused(images: int, texts: int, options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        evaluate_retrieval(torch.ones(images, 1, 2), torch.ones(texts, 2), **options)


def test_chance_is_what_random_embeddings_reach():
    generator = torch.Generator().manual_seed(1)
    counts = [5, 3, 5, 1] * 10
    sums = [
        evaluate_retrieval(
            torch.randn(40, 1, 16, generator=generator), torch.randn(sum(counts), 16, generator=generator), counts
        ).rsum
        for _ in range(300)
    ]
    assert chance_rsum(counts) == pytest.approx(np.mean(sums), rel=0.05)
    assert chance_rsum([5]) == 600


def test_chance_is_the_mean_of_the_folds():
    counts = [5, 3, 1, 4, 2, 6] * 3
    folds = [chance_rsum(counts[:6]), chance_rsum(counts[6:12]), chance_rsum(counts[12:])]
    assert chance_rsum(counts, folds=3) == pytest.approx(sum(folds) / 3)
    assert chance_rsum(counts, folds=3) > 2 * chance_rsum(counts)
