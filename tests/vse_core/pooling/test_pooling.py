"""Aggregators against naive oracles, published numbers, and the invariances every aggregator has."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.pooling import POOLINGS, build_pooling
from vse_core.pooling.gpo import GeneralizedPooling, rank_codes
from vse_core.pooling.sorting import rank_weighted_sum

DIM = 6


def make_pooling(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return build_pooling(name, DIM)


def make_sets(lengths: list[int], dim: int = DIM, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), max(lengths), dim, generator=generator), torch.tensor(lengths)


def gpo_oracle(module: GeneralizedPooling, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """One sample at a time, one dimension at a time, without packing or padding."""
    pooled = []
    for sample, length in zip(features, lengths.tolist(), strict=True):
        codes = torch.tensor(
            [
                [(math.sin if i % 2 == 0 else math.cos)(k * 10000 ** (-2 * (i // 2) / 32)) for i in range(32)]
                for k in range(length)
            ]
        )
        hidden = module.gru(codes.unsqueeze(0))[0][0]
        scores = module.linear((hidden[:, :32] + hidden[:, 32:]) / 2)[:, 0]
        weights = torch.softmax(scores / 0.1, dim=0)
        columns = [sorted(sample[:length, d].tolist(), reverse=True) for d in range(sample.shape[1])]
        pooled.append(torch.stack([(torch.tensor(column) * weights).sum() for column in columns]))
    return torch.stack(pooled)


def test_rank_codes_match_the_recorded_numbers():
    codes = rank_codes(3, 32)
    assert codes[0, :4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert codes[1, :4].tolist() == pytest.approx([0.841471, 0.540302, 0.533168, 0.846009], abs=1e-6)
    assert codes[1, 30].item() == pytest.approx(math.sin(1.7783e-4), rel=1e-4)


def test_gpo_matches_the_naive_reading_of_the_paper():
    module = make_pooling("gpo")
    features, lengths = make_sets([7, 1, 4, 7, 3])
    torch.testing.assert_close(module(features, lengths), gpo_oracle(module, features, lengths), atol=1e-6, rtol=1e-5)


def test_gpo_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in make_pooling("gpo").parameters()) == 12_704


def test_gpo_with_zero_scores_is_the_mean():
    module = make_pooling("gpo")
    torch.nn.init.zeros_(module.linear.weight)
    features, lengths = make_sets([5, 2, 3])
    torch.testing.assert_close(module(features, lengths), make_pooling("mean")(features, lengths))


def test_all_weight_on_the_first_rank_is_max_pooling():
    features, lengths = make_sets([5, 2, 3])
    first = torch.zeros(3, 5)
    first[:, 0] = 1
    torch.testing.assert_close(rank_weighted_sum(features, lengths, first), make_pooling("max")(features, lengths))


def test_gpo_coefficients_sum_to_one_and_vanish_beyond_the_length():
    weights = make_pooling("gpo").coefficients(torch.tensor([4, 1, 9]), 12)
    assert weights.shape == (3, 12)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3))
    assert weights[0, 4:].eq(0).all()
    assert weights[1, 1:].eq(0).all()


def test_rank_weighted_sum_gradients():
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 5, generator=generator, requires_grad=True)
    features = torch.randn(2, 5, 3, generator=generator, requires_grad=True)
    lengths = torch.tensor([5, 3])

    def naive(features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [
                (features[b, :n].sort(dim=0, descending=True).values * weights[b, :n, None]).sum(dim=0)
                for b, n in enumerate(lengths.tolist())
            ]
        )

    probe = torch.randn(2, 3, generator=generator)
    ours = torch.autograd.grad((rank_weighted_sum(features, lengths, weights) * probe).sum(), (features, weights))
    theirs = torch.autograd.grad((naive(features, weights) * probe).sum(), (features, weights))
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("name", POOLINGS)
@settings(deadline=None, max_examples=25)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), padding=st.integers(0, 4), seed=st.integers(0, 99))
def test_padding_and_order_never_change_the_result(name: str, lengths: list[int], padding: int, seed: int):
    module = make_pooling(name)
    features, lengths_B = make_sets(lengths, seed=seed)
    expected = module(features, lengths_B)
    padded = torch.full((len(lengths), max(lengths) + padding, DIM), 1e4)
    generator = torch.Generator().manual_seed(seed)
    for b, length in enumerate(lengths):
        padded[b, :length] = features[b, torch.randperm(length, generator=generator)]
    torch.testing.assert_close(module(padded, lengths_B), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_neither_overflows_nor_loses_its_type(name: str, dtype: torch.dtype):
    features = torch.full((1, 256, DIM), 3e4 if dtype == torch.float16 else 1e30, dtype=dtype)
    pooled = make_pooling(name)(features, torch.tensor([256]))
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled.float(), features[:, 0].float(), rtol=1e-2, atol=0)


@pytest.mark.parametrize("name", POOLINGS)
def test_impossible_lengths_are_refused(name: str):
    features, _ = make_sets([3, 3])
    with pytest.raises(ValueError, match="sample 1 of the batch has length 0"):
        make_pooling(name)(features, torch.tensor([3, 0]))
    with pytest.raises(ValueError, match="length 4, but the batch is padded to 3"):
        make_pooling(name)(features, torch.tensor([4, 1]))


def test_unknown_names_and_options_are_refused_with_the_nearest_known_one():
    with pytest.raises(ValueError, match="did you mean 'gpo'"):
        build_pooling("gpoo", DIM)
    with pytest.raises(ValueError, match="did you mean 'temperature'"):
        build_pooling("gpo", DIM, temprature=1.0)
