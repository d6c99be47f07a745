"""Sampler invariants: a partition of every epoch, whatever the number of ranks, from any step."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.loading.sampler import BatchSampler, rank_slice


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    samples = draw(st.integers(1, 400))
    return samples, draw(st.integers(1, samples))


@given(sizes(), st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_every_sample_once_an_epoch_in_balanced_batches(size: tuple[int, int], seed: int, epoch: int) -> None:
    samples, batch_size = size
    sampler = BatchSampler(samples, batch_size, seed)
    batches = [sampler.batch(epoch, step) for step in range(sampler.steps_per_epoch)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(samples))
    lengths = {len(batch) for batch in batches}
    assert max(lengths) <= batch_size
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) == sampler.smallest_batch
    assert len(batches) == -(-samples // batch_size)


@given(sizes(), st.integers(1, 8), st.integers(0, 5))
def test_rank_slices_join_to_the_global_batch(size: tuple[int, int], world: int, epoch: int) -> None:
    sampler = BatchSampler(*size, seed=3)
    if sampler.smallest_batch < world:
        return
    for step in range(sampler.steps_per_epoch):
        batch = sampler.batch(epoch, step)
        parts = [rank_slice(batch, rank, world) for rank in range(world)]
        assert np.concatenate(parts).tolist() == batch.tolist()
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=20))
def test_a_batch_does_not_depend_on_what_was_asked_before(questions: list[tuple[int, int]]) -> None:
    used = BatchSampler(100, 10, seed=1)
    for epoch, step in questions:
        fresh = BatchSampler(100, 10, seed=1)
        assert used.batch(epoch, step).tolist() == fresh.batch(epoch, step).tolist()


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    orders = [
        np.concatenate([BatchSampler(1000, 100, seed).batch(epoch, s) for s in range(10)])
        for seed, epoch in [(0, 0), (0, 1), (1, 0)]
    ]
    for first, second in [(0, 1), (0, 2), (1, 2)]:
        assert (orders[first] == orders[second]).mean() < 0.01
    assert (orders[0] == np.arange(1000)).mean() < 0.01


def test_the_order_is_recorded() -> None:
    """Changing these numbers breaks the resumption of every run that was started before."""
    assert BatchSampler(10, 5, seed=0).batch(0, 0).tolist() == [0, 2, 9, 1, 8]
    assert BatchSampler(10, 5, seed=0).batch(1, 1).tolist() == [4, 1, 0, 6, 9]


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="3 samples do not fill a batch of 4"):
        BatchSampler(3, 4, seed=0)
    with pytest.raises(ValueError, match="rank"):
        rank_slice(np.arange(4), 2, 2)
    with pytest.raises(ValueError, match="raise batch_size or lower workers"):
        rank_slice(np.arange(4), 0, 5)
    with pytest.raises(ValueError, match="99 samples does not fit 100"):
        BatchSampler(100, 8, 3, [40, 59], 2)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 3))
def test_windows_of_shards_follow_each_other(counts: list[int], window: int, epoch: int) -> None:
    samples = sum(counts)
    if not samples:
        return
    sampler = BatchSampler(samples, min(7, samples), 5, counts, window)
    order = np.concatenate([sampler.batch(epoch, step) for step in range(sampler.steps_per_epoch)])
    assert sorted(order.tolist()) == list(range(samples))
    shard_of = np.repeat(np.arange(len(counts)), counts)[order]
    first = {shard: int(np.argmax(shard_of == shard)) for shard in shard_of.tolist()}
    last = {shard: samples - 1 - int(np.argmax(shard_of[::-1] == shard)) for shard in shard_of.tolist()}
    for place in range(samples):
        begun_and_not_ended = sum(first[shard] <= place <= last[shard] for shard in first)
        assert begun_and_not_ended <= window


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 2**64 - 1))
def test_windows_are_cut_from_an_order_of_the_whole_epoch(counts: list[int], window: int, seed: int) -> None:
    """Oracle: all draws of the epoch at once, the samples' before the shards', and one sort of all samples."""
    samples = sum(counts)
    if not samples:
        return
    draws = np.random.Philox(key=np.array([seed, 3], dtype=np.uint64)).random_raw(samples + len(counts))
    place = {int(shard): number for number, shard in enumerate(np.argsort(draws[samples:], kind="stable"))}
    of_sample = [place[shard] // window for shard, count in enumerate(counts) for _ in range(count)]
    expected = sorted(range(samples), key=lambda sample: (of_sample[sample], draws[sample]))
    sampler = BatchSampler(samples, min(7, samples), seed, counts, window)
    steps = reversed(range(sampler.steps_per_epoch))
    batches = {step: sampler.batch(3, step).tolist() for step in steps}
    assert [sample for step in range(sampler.steps_per_epoch) for sample in batches[step]] == expected


def test_the_order_of_a_window_alone_is_in_memory() -> None:
    sampler = BatchSampler(10_000_000, 1000, 0, [1000] * 10_000, window=4)
    tracemalloc.start()
    for step in range(0, sampler.steps_per_epoch, 500):
        sampler.batch(0, step)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000  # of the whole order 80,000,000; shards take 16 bytes each and samples of windows 24


def test_one_window_of_all_shards_is_the_order_without_windows() -> None:
    without, with_one = BatchSampler(100, 8, 3), BatchSampler(100, 8, 3, [40, 0, 60], 3)
    for step in range(without.steps_per_epoch):
        assert without.batch(2, step).tolist() == with_one.batch(2, step).tolist()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_what_is_left_out_leaves_the_order_of_a_split_without_it(
    counts: list[int], window: int, data: st.DataObject
) -> None:
    """Oracle: a split that never had these samples, whose numbers are translated."""
    samples = sum(counts)
    is_kept = data.draw(st.lists(st.booleans(), min_size=samples, max_size=samples))
    kept = np.flatnonzero(is_kept)
    if not len(kept):
        return
    edges = np.cumsum([0, *counts])
    remaining = [sum(is_kept[start:end]) for start, end in itertools.pairwise(edges)]
    for shards, rest, each in ((counts, remaining, window), ((), (), None)):
        batch = min(7, len(kept))
        sampler = BatchSampler(samples, batch, 5, shards, each, kept)
        without = BatchSampler(len(kept), batch, 5, rest, each)
        assert (sampler.total, sampler.num_samples) == (samples, len(kept))
        for step in range(without.steps_per_epoch):
            assert sampler.batch(1, step).tolist() == kept[without.batch(1, step)].tolist()


def test_batches_and_steps_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        BatchSampler(3, 0, seed=0)
    with pytest.raises(ValueError, match="steps 0 to 1"):
        BatchSampler(10, 5, seed=0).batch(0, 2)
