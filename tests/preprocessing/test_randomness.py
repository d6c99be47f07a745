"""Streams of random numbers are functions of their keys alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.randomness import sample_rng

keys = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**20 - 1), st.integers(0, 2**40 - 1), st.integers(0, 15))


@given(keys, keys)
def test_one_sequence_for_each_key(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> None:
    first = sample_rng(*one).random(4)
    assert (sample_rng(*one).random(4) == first).all()
    assert (sample_rng(*other).random(4) == first).all() == (one == other)


def test_the_key_is_the_documented_packing() -> None:
    packed = (3 << 44) | (5 << 4) | 1
    expected = np.random.Generator(np.random.Philox(key=np.array([2**63 + 1, packed], dtype=np.uint64))).random(5)
    assert (sample_rng(2**63 + 1, 3, 5, 1).random(5) == expected).all()


@pytest.mark.parametrize("key", [(-1, 0, 0, 0), (2**64, 0, 0, 0), (0, 2**20, 0, 0), (0, 0, 2**40, 0), (0, 0, 0, 16)])
def test_a_key_outside_its_range_is_refused(key: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be from 0 to"):
        sample_rng(*key)
