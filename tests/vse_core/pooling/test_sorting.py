"""Sorted sets and their weighted sums against sorting one set at a time; the fast path against PyTorch's own sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.pooling.sorting import rank_weighted_sum, sort_sets


def naive_sort(features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    ranked = torch.zeros_like(features)
    for b, n in enumerate(lengths.tolist()):
        ranked[b, :n] = features[b, :n].sort(dim=0, descending=True).values
    return ranked


def naive_sum(features: torch.Tensor, lengths: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.stack(
        [
            torch.stack([(ranked[:n] * weights[b, k, :n, None]).sum(dim=0) for k in range(weights.shape[1])])
            for b, (ranked, n) in enumerate(zip(naive_sort(features, lengths), lengths.tolist(), strict=True))
        ]
    )


def draw(lengths: list[int], padding: int, dim: int, views: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    size = max(lengths) + padding
    # Each value once, also in float32: of two equal ones either may have the gradient of either rank.
    values = torch.randperm(len(lengths) * size * dim, generator=generator, dtype=torch.float64)
    features = (4 * values / len(values) - 2).view(len(lengths), size, dim)
    weights = torch.randn(len(lengths), views, size, generator=generator, dtype=torch.float64)
    return features, torch.tensor(lengths), weights


SETS = {
    "lengths": st.lists(st.integers(1, 40), min_size=1, max_size=4),
    "padding": st.integers(0, 3),
    "dim": st.integers(1, 9),
    "views": st.integers(1, 3),
    "seed": st.integers(0, 999),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60)
@given(**SETS)
def test_sums_and_both_gradients(
    dtype: torch.dtype, lengths: list[int], padding: int, dim: int, views: int, seed: int
) -> None:
    features, lengths_B, weights = draw(lengths, padding, dim, views, seed)
    # Both start from the same float32 values, so that only our arithmetic differs from the oracle's float64.
    exact = [tensor.float().double().requires_grad_() for tensor in (features, weights)]
    ours = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    expected = naive_sum(exact[0], lengths_B, exact[1])
    found = rank_weighted_sum(ours[0], lengths_B, ours[1])
    torch.testing.assert_close(found, expected.to(dtype), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(rank_weighted_sum(ours[0], lengths_B, ours[1]), found, atol=1e-5, rtol=1e-5)
    probe = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    grads = torch.autograd.grad(found, ours, probe.to(dtype))
    for mine, theirs in zip(grads, torch.autograd.grad(expected, exact, probe), strict=True):
        torch.testing.assert_close(mine, theirs.to(dtype), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60)
@given(**SETS)
def test_sorted_sets_and_their_gradient(
    dtype: torch.dtype, lengths: list[int], padding: int, dim: int, views: int, seed: int
) -> None:
    features, lengths_B, _ = draw(lengths, padding, dim, views, seed)
    exact = features.float().double().requires_grad_()
    ours = exact.detach().to(dtype).requires_grad_()
    found, expected = sort_sets(ours, lengths_B), naive_sort(exact, lengths_B)
    assert torch.equal(found.double(), expected)
    assert torch.equal(sort_sets(ours.detach(), lengths_B), found)
    (mine,) = torch.autograd.grad(found.square().sum() / 2, ours)
    (theirs,) = torch.autograd.grad(expected.square().sum() / 2, exact)
    assert torch.equal(mine.double(), theirs)


def test_sets_larger_than_a_byte_counts():
    features, lengths_B, weights = (tensor.float() for tensor in draw([300, 257], 0, 2, 1, seed=0))
    features.requires_grad_()
    found = rank_weighted_sum(features, lengths_B.long(), weights)
    expected = naive_sum(features, lengths_B.long(), weights)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    grads = [torch.autograd.grad(pooled.square().sum(), features)[0] for pooled in (found, expected)]
    torch.testing.assert_close(*grads, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -1e-45, 1e-38, -3.0, 3.4e38, -3.4e38])
def test_extreme_values_and_equal_ones_come_back_exactly(value: float):
    features = torch.tensor([value, 1.0, value, -1.0, value]).reshape(1, 5, 1).requires_grad_()
    ranked = sort_sets(features, torch.tensor([5]))
    assert ranked.flatten().tolist() == sorted(features.flatten().tolist(), reverse=True)
    (grad,) = torch.autograd.grad((ranked.flatten() * torch.arange(5.0)).sum(), features)
    # Equal values share their ranks in some order: every rank is used once.
    assert sorted(grad.flatten().tolist()) == [0, 1, 2, 3, 4]
    assert torch.equal(features.flatten()[grad.flatten().argsort()], ranked.flatten())


def test_the_input_is_left_as_it_is_whatever_its_layout():
    for features in (torch.randn(2, 4, 1), torch.randn(2, 3, 4).transpose(1, 2), torch.randn(2, 4, 6)[..., ::2]):
        before = features.clone()
        lengths = torch.tensor([4, 3])
        assert torch.equal(sort_sets(features, lengths), naive_sort(before, lengths))
        rank_weighted_sum(features, lengths, torch.ones(2, 1, 4))
        assert torch.equal(features, before)


def test_what_is_not_finite_stays_visible():
    features = torch.zeros(1, 4, 3)
    features[0, 2] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    for needs_grad in (False, True):
        pooled = rank_weighted_sum(features.requires_grad_(needs_grad), torch.tensor([4]), torch.ones(1, 1, 4))
        assert not pooled.isfinite().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32_even_under_autocast(dtype: torch.dtype):
    features = torch.full((1, 300, 2), 300.0, dtype=dtype)
    lengths, weights = torch.tensor([300]), torch.ones(1, 1, 300)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = rank_weighted_sum(features, lengths, weights)
    assert pooled.dtype == torch.float32
    assert torch.equal(pooled, 300 * features[:, :1].float())
