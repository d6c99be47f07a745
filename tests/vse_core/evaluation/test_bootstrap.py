"""Bootstrap intervals and paired comparisons, against a loop that draws image by image."""

import numpy as np
import pytest
import torch

from vse_core.evaluation.bootstrap import (
    compare_retrieval,
    resampled_recalls,
    resampled_retrieval,
    retrieval_intervals,
)
from vse_core.evaluation.ranks import Ranks
from vse_core.evaluation.recall import RetrievalRanks, rank_retrieval


def ranks_of(values: list[int]) -> Ranks:
    """Ranks of which only the ranks themselves matter."""
    nothing = torch.zeros(len(values))
    return Ranks(torch.tensor(values), nothing.bool(), nothing.long(), nothing, nothing.long(), nothing)


def model(seed: int, noise: float, counts: list[int], folds: int = 1) -> RetrievalRanks:
    """Ranks of embeddings that know the truth up to some noise."""
    truth = torch.randn(len(counts), 8, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    texts = truth.repeat_interleave(torch.tensor(counts), dim=0)
    members = [(truth, texts + noise * torch.randn(texts.shape, generator=generator))]
    return rank_retrieval(members, counts, (folds,))[folds]


def naive_resample(ranks: RetrievalRanks, drawn: list[int]) -> dict[str, float]:
    """Recalls of the images drawn, one after another, with all captions of each."""
    owner = ranks.image_of_caption.tolist()
    images = [int(ranks.image_to_text.ranks_Q[image]) for image in drawn]
    captions = [
        int(rank)
        for image in drawn
        for rank, of in zip(ranks.text_to_image.ranks_Q.tolist(), owner, strict=True)
        if of == image
    ]
    recalls = {
        f"{way}_r{k:02}": 100 * float(np.mean([rank < k for rank in found]))
        for way, found in (("i2t", images), ("t2i", captions))
        for k in (1, 5, 10)
    }
    return {"rsum": sum(recalls.values()), **recalls}


def test_every_resample_is_that_of_a_loop_over_the_images_drawn():
    counts = [3, 1, 5, 2, 4, 1, 2, 3, 5, 5, 1, 2]
    ranks = model(0, 2.0, counts)
    drawn = torch.randint(len(counts), (20, len(counts)), generator=torch.Generator().manual_seed(7))
    found = resampled_retrieval(ranks, resamples=20, seed=7)
    for row, images in enumerate(drawn.tolist()):
        assert {name: float(values[row]) for name, values in found.items()} == pytest.approx(
            naive_resample(ranks, images)
        )


def test_folds_are_drawn_each_for_itself_and_averaged():
    counts = [2] * 12
    ranks = model(1, 2.0, counts, folds=3)
    found = resampled_retrieval(ranks, resamples=5, seed=3)
    folds = [resampled_retrieval(fold, resamples=5, seed=3 + number) for number, fold in enumerate(ranks.each_fold())]
    for name, values in found.items():
        assert values.tolist() == pytest.approx(np.mean([fold[name].numpy() for fold in folds], axis=0).tolist())


def test_chunks_of_resamples_draw_what_one_chunk_draws(monkeypatch: pytest.MonkeyPatch):
    ranks = ranks_of([0, 4, 20, 0, 7, 3, 9])
    whole = resampled_recalls(ranks, resamples=50)
    monkeypatch.setattr("vse_core.evaluation.bootstrap._CHUNK_DRAWS", 21)
    chunked = resampled_recalls(ranks, resamples=50)
    assert [values.tolist() for values in whole.values()] == [values.tolist() for values in chunked.values()]


def test_an_interval_is_as_wide_as_the_binomial_distribution_says():
    found = resampled_recalls(ranks_of([0] * 300 + [50] * 700), resamples=4000)["r01"]
    assert float(found.mean()) == pytest.approx(30, abs=0.2)
    assert float(found.std()) == pytest.approx(100 * np.sqrt(0.3 * 0.7 / 1000), rel=0.05)


def test_intervals_hold_the_metric_and_repeat():
    ranks = model(2, 2.0, [5] * 40)
    intervals, values = retrieval_intervals(ranks), ranks.result().as_dict()
    assert all(interval.low <= values[name] <= interval.high for name, interval in intervals.items())
    assert intervals == retrieval_intervals(ranks)
    assert intervals != retrieval_intervals(ranks, seed=1)


def test_a_clearly_better_model_is_told_from_chance_and_equals_are_not():
    counts = [5] * 60
    good, bad, other = model(3, 1.5, counts), model(4, 3.0, counts), model(5, 1.5, counts)
    better = compare_retrieval(good, bad)["rsum"]
    assert better.difference == pytest.approx(good.result().rsum - bad.result().rsum)
    assert better.interval.low > 0
    assert better.p_value < 0.01
    same = compare_retrieval(good, good)["rsum"]
    assert (same.difference, same.interval.low, same.interval.high, same.p_value) == (0, 0, 0, 1)
    assert compare_retrieval(good, other)["rsum"].p_value > compare_retrieval(bad, good)["rsum"].p_value


@pytest.mark.parametrize(("counts", "folds"), [([5] * 12, 2), ([5] * 11, 1), ([4] * 12, 1)])
def test_other_queries_cannot_be_compared(counts: list[int], folds: int):
    with pytest.raises(ValueError, match="only ranks of the same images, captions and folds"):
        compare_retrieval(model(0, 1.0, [5] * 12), model(0, 1.0, counts, folds))
