"""Collation: exact copies, zero padding, and memory that is used again only when nobody needs it."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.loading.batch import Batch, FeatureBuffers, pad_features, pad_tokens


def arrays(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, 3)).astype(np.float16) for length in lengths]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6).filter(any), min_size=1, max_size=5))
def test_features_are_compacted_and_padded(masks: list[list[bool]]) -> None:
    buffers = FeatureBuffers(1)
    # Left-over contents of the buffer must not show in the padding.
    pad_features([np.full((6, 3), 9, dtype=np.float16)] * 5, None, buffers)
    features = arrays([len(mask) for mask in masks])
    out, lengths = pad_features(features, [np.flatnonzero(mask) for mask in masks], buffers)
    expected = [array[np.array(mask)] for array, mask in zip(features, masks, strict=True)]
    assert out.dtype == torch.float16
    assert lengths.dtype == torch.int64
    assert lengths.tolist() == [len(rows) for rows in expected]
    assert out.shape == (len(masks), max(map(len, expected)), 3)
    for row, rows in enumerate(expected):
        np.testing.assert_array_equal(out[row, : len(rows)].numpy(), rows)
        assert not out[row, len(rows) :].any()


def test_tokens() -> None:
    out, lengths = pad_tokens([np.array([1, 5, 2], dtype=np.int32), [1, 2]], pad_id=9)
    assert out.tolist() == [[1, 5, 2], [1, 2, 9]]
    assert lengths.tolist() == [3, 2]
    assert out.dtype == lengths.dtype == torch.int64


def test_a_batch_moves() -> None:
    tokens = [np.array([1, 2], dtype=np.int32)] * 2
    images = pad_features(arrays([2, 3]), None, FeatureBuffers(1))
    batch = Batch(*images, *pad_tokens(tokens, 0), torch.tensor([4, 5]), torch.tensor([20, 25]))
    assert len(batch) == 2
    moved = batch.to("meta")
    assert moved.images.device.type == moved.caption_indices_B.device.type == "meta"
    assert moved.tokens_BL.shape == batch.tokens_BL.shape


@pytest.mark.gpu
def test_pinned_memory() -> None:
    images = pad_features(arrays([2]), None, FeatureBuffers(1))
    batch = Batch(*images, *pad_tokens([[1, 2]], 0), torch.tensor([0]), torch.tensor([0])).pin()
    assert batch.images.is_pinned()
    assert batch.caption_indices_B.is_pinned()


def test_memory_is_used_again_only_when_nobody_needs_it() -> None:
    buffers = FeatureBuffers(2)
    first, _ = pad_features(arrays([4, 4], seed=1), None, buffers)
    address = first.data_ptr()
    part, expected = first[1:], first[1:].clone()
    del first
    second, _ = pad_features(arrays([4, 4], seed=2), None, buffers)
    assert second.data_ptr() != address  # a view of the first one is alive
    assert torch.equal(part, expected)
    del part
    gc.collect()
    third, _ = pad_features(arrays([4, 3], seed=3), None, buffers)
    assert third.data_ptr() == address
