"""Aggregators against naive oracles, published numbers, and the invariances every aggregator has."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.pooling import POOLINGS, build_pooling

DIM = 6
# Aggregators that look at the order of the elements, as a sentence has one.
ORDERED = {"cls", "last", "seq2seq"}
# Those whose result lies between the elements.
GENERATORS = ("gpo", "gpo_transformer", "gpo_dimensions", "gpo_features")
MEANS = ("mean", "max", "kmax", "cls", "last", *GENERATORS, "adpool", "gem", "softpool", "adapool", "lip", "attention")


def make_pooling(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return build_pooling(name, DIM)


def make_sets(lengths: list[int], dim: int = DIM, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), max(lengths), dim, generator=generator), torch.tensor(lengths)


def test_k_max_is_the_mean_of_the_largest_values_or_of_all_of_a_smaller_set():
    features, lengths = make_sets([5, 2, 3])
    pooled = build_pooling("kmax", DIM, k=3)(features, lengths)
    for sample, length, found in zip(features, lengths.tolist(), pooled, strict=True):
        for d in range(DIM):
            largest = sorted(sample[:length, d].tolist())[-3:]
            assert found[d].item() == pytest.approx(sum(largest) / len(largest), abs=1e-6)
    for k, name in ((1, "max"), (9, "mean")):
        pooled = build_pooling("kmax", DIM, k=k)(features, lengths)
        torch.testing.assert_close(pooled, make_pooling(name)(features, lengths))


def test_cls_and_last_are_the_first_and_the_last_real_element():
    features, lengths = make_sets([5, 2, 3])
    assert torch.equal(make_pooling("cls")(features, lengths), features[:, 0])
    last = torch.stack([features[0, 4], features[1, 1], features[2, 2]])
    assert torch.equal(make_pooling("last")(features, lengths), last)


@pytest.mark.parametrize("name", POOLINGS)
@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), padding=st.integers(0, 4), seed=st.integers(0, 99))
def test_padding_and_order_never_change_the_result(name: str, lengths: list[int], padding: int, seed: int):
    module = make_pooling(name)
    features, lengths_B = make_sets(lengths, seed=seed)
    expected = module(features, lengths_B)
    padded = torch.full((len(lengths), max(lengths) + padding, DIM), 1e4)
    generator = torch.Generator().manual_seed(seed)
    for b, length in enumerate(lengths):
        order = torch.arange(length) if name in ORDERED else torch.randperm(length, generator=generator)
        padded[b, :length] = features[b, order]
    torch.testing.assert_close(module(padded, lengths_B), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_neither_overflows_nor_loses_its_type(name: str, dtype: torch.dtype):
    features = torch.full((1, 256, DIM), 3e4 if dtype == torch.float16 else 1e30, dtype=dtype)
    pooled = make_pooling(name)(features, torch.tensor([256]))
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled.float(), features[:, 0].float(), rtol=1e-2, atol=0)


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_float32_rounded_once(name: str, dtype: torch.dtype):
    features, lengths = make_sets([200, 1, 60])
    module, halved = make_pooling(name), features.to(dtype)
    assert torch.equal(module(halved, lengths), module(halved.float(), lengths).to(dtype))


@pytest.mark.parametrize("name", POOLINGS)
def test_every_parameter_and_every_real_element_has_a_finite_gradient(name: str):
    module = make_pooling(name)
    features, lengths = make_sets([4, 1, 3])
    features.requires_grad_()
    module(features, lengths).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())
    assert features.grad.isfinite().all()
    assert features.grad[1, 1:].eq(0).all()
    assert features.grad.ne(0).flatten(1).any(dim=1).all()


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
