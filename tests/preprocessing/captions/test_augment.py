"""Augmentation: stated probabilities, guards, and numbers that depend on (seed, epoch, sample, stream) alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.captions.augment import (
    augment_tokens,
    drop_dimensions,
    drop_grids,
    drop_regions,
)
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.randomness import sample_rng

VOCABULARY = Vocabulary.build([" ".join(f"w{i}" for i in range(995))], min_count=1)


class Draws:
    """Stands in for a generator: hands out given numbers."""

    def __init__(self, *values: float) -> None:
        self.values = np.array(values)

    def random(self, shape: int | tuple[int, ...]) -> np.ndarray:
        return self.values.reshape(shape)


def naive_caption(ids: list[int], touch: list[float], entry: list[float]) -> list[int]:
    """The released branch, token by token."""
    out = []
    for token, prob, choice in zip(ids, touch, entry, strict=True):
        if prob >= 0.2:
            out.append(token)
            continue
        prob /= 0.2
        if prob < 0.5:
            out.append(VOCABULARY.mask_id)
        elif prob < 0.6:
            out.append(int(choice * len(VOCABULARY)))
    return out or ids


@given(
    st.lists(
        st.tuples(
            st.integers(0, 999),
            st.sampled_from([0.0, 0.05, 0.099, 0.101, 0.11, 0.119, 0.121, 0.19, 0.2, 0.9]),
            st.floats(0, 0.999),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_caption_equals_the_token_by_token_rule(tokens: list[tuple[int, float, float]]) -> None:
    ids, touch, entry = (list(column) for column in zip(*tokens, strict=True))
    array = np.array(ids, dtype=np.int32)
    out = augment_tokens(array, Draws(*touch, *entry), VOCABULARY.mask_id, len(VOCABULARY))  # type: ignore[arg-type]
    assert out.tolist() == naive_caption(ids, touch, entry)
    assert out.dtype == np.int32
    assert array.tolist() == ids


@pytest.mark.parametrize("keep_ends", [False, True])
def test_start_and_end_are_augmented_too_unless_they_are_kept(keep_ends: bool) -> None:
    ids, words = np.array(VOCABULARY.encode_words("w1 w2"), dtype=np.int32)
    out = [VOCABULARY.augment(ids, words, sample_rng(0, 0, sample, 1), keep_ends) for sample in range(200)]
    assert all(caption[0] == Vocabulary.START for caption in out) == keep_ends
    assert all(caption[-1] == Vocabulary.END for caption in out) == keep_ends
    assert {len(caption) for caption in out} >= {3, 4}
    if keep_ends:
        inner = naive_caption(ids[1:-1].tolist(), *sample_rng(0, 0, 7, 1).random((2, 2)).tolist())
        assert out[7].tolist() == [Vocabulary.START, *inner, Vocabulary.END]


def test_region_rates_and_independence() -> None:
    kept = np.zeros((4000, 36), dtype=bool)
    for sample in range(4000):
        kept[sample, drop_regions(36, sample_rng(0, 3, sample, 0))] = True
    assert abs(kept.mean() - 0.8) < 0.005
    assert np.abs(kept.mean(axis=0) - 0.8).max() < 0.03
    # Of 36 independent regions: variance 36 * 0.8 * 0.2.
    assert abs(kept.sum(axis=1).var() - 5.76) < 0.5


@pytest.mark.parametrize("drop", [drop_regions, drop_grids])
def test_indices_ascend_and_at_least_one_stays(drop: object) -> None:
    for n in (1, 2, 36):
        for sample in range(300):
            kept = drop(n, sample_rng(1, 0, sample, 0), rate=1.0)  # type: ignore[operator]
            assert 1 <= len(kept) <= n
            assert (np.diff(kept) > 0).all()
            assert set(kept.tolist()) <= set(range(n))


def test_grid_cells_follow_the_two_stage_rule() -> None:
    assert drop_grids(3, Draws(0.2, 0.0, 0.0, 0.0)).tolist() == [0, 1, 2]  # type: ignore[arg-type]
    assert drop_grids(3, Draws(0.5, 0.09, 0.11, 0.9)).tolist() == [1, 2]  # type: ignore[arg-type]
    assert drop_grids(3, Draws(1.0, 0.19, 0.21, 0.2)).tolist() == [1]  # type: ignore[arg-type]
    assert drop_grids(3, Draws(1.0, 0.1, 0.15, 0.0)).tolist() == [1]  # type: ignore[arg-type]


def test_dimensions_keep_their_mean() -> None:
    factors = np.concatenate([drop_dimensions(500, 0.2, sample_rng(0, 0, sample, 5)) for sample in range(100)])
    assert factors.dtype == np.float16
    assert set(factors.tolist()) == {0.0, 1.25}
    assert abs(factors.mean(dtype=np.float64) - 1) < 0.01
