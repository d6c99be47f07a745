"""GeM, FSPool, SoftPool, AdaPool, LIP and attention against loops over their definitions, values and gradients."""

import math
from collections.abc import Callable

import pytest
import torch

from tests.vse_core.pooling.gradients import assert_same
from vse_core.pooling import build_pooling
from vse_core.pooling.learned import AdaPooling, GeMPooling, LocalImportancePooling, interpolation_weights

DIM = 4
SETS = torch.randn(4, 6, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = torch.tensor([6, 1, 4, 2])


def gem(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return rows.clamp(min=1e-6).pow(module.power).mean(dim=0).pow(1 / module.power)


def fspool(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    ranked = rows.sort(dim=0, descending=True).values
    total = torch.zeros(DIM, dtype=rows.dtype)
    for rank, row in enumerate(ranked):
        place = 20 * rank / max(len(rows) - 1, 1)
        below = min(math.floor(place), 19)
        left, right = module.weight[:, below], module.weight[:, below + 1]
        total = total + row * (left + (place - below) * (right - left))
    return total


def softpool(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return sum(row * row.exp() for row in rows) / sum(row.exp() for row in rows)


def adapool(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    mean = rows.mean(dim=0)
    weights = [torch.exp(2 * (row @ mean).abs() / (row @ row + mean @ mean)) for row in rows]
    alike = sum(weight * row for weight, row in zip(weights, rows, strict=True)) / sum(weights)
    beta = torch.sigmoid(module.beta)
    return beta * alike + (1 - beta) * softpool(module, rows)


def lip(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    projected = rows @ module.linear.weight.T
    normed = (projected - projected.mean(dim=0)) / torch.sqrt(projected.var(dim=0, correction=0) + 1e-5)
    importance = torch.exp(12 * torch.sigmoid(normed * module.scale + module.shift))
    return (importance * rows).mean(dim=0) / importance.mean(dim=0)


def attention(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    weights = [torch.exp(module.linear.weight[0] @ row + module.linear.bias[0]) for row in rows]
    return sum(weight * row for weight, row in zip(weights, rows, strict=True)) / sum(weights)


ORACLES = {"gem": gem, "fspool": fspool, "softpool": softpool, "adapool": adapool, "lip": lip, "attention": attention}


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    module = build_pooling(name, DIM).double()
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5) if parameter.dim() < 2 else torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize(("name", "oracle"), ORACLES.items())
def test_output_and_every_gradient(name: str, oracle: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]):
    module, features = make(name), SETS.clone().requires_grad_()
    inputs = [features, *module.parameters()]
    expected = torch.stack([oracle(module, rows[:n]) for rows, n in zip(features, LENGTHS.tolist(), strict=True)])
    assert_same(module(features, LENGTHS), expected, inputs)
    torch.testing.assert_close(module.float()(SETS.float(), LENGTHS), expected.float(), atol=1e-5, rtol=1e-4)


def test_gem_is_the_mean_at_one_and_nears_the_maximum_without_overflow():
    features, module = SETS.abs().float() * 1e4, GeMPooling()
    assert module.power.item() == 3.0
    torch.nn.init.constant_(module.power, 1.0)
    torch.testing.assert_close(module(features, LENGTHS), build_pooling("mean", DIM)(features, LENGTHS))
    torch.nn.init.constant_(module.power, 1e3)
    largest = build_pooling("max", DIM)(features, LENGTHS)
    torch.testing.assert_close(module(features, LENGTHS), largest, rtol=3e-3, atol=0)


def test_gem_begins_with_a_whole_number():
    features = SETS.float()
    found, expected = (build_pooling("gem", DIM, power=power)(features, LENGTHS) for power in (2, 2.0))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_points_of_fspool_lie_evenly_over_the_ranks():
    weights = interpolation_weights(torch.tensor([5, 1]), 6, 2)
    assert weights.shape == (2, 3, 6)
    five = [[1, 0.5, 0, 0, 0], [0, 0.5, 1, 0.5, 0], [0, 0, 0, 0.5, 1]]
    torch.testing.assert_close(weights[0, :, :5], torch.tensor(five).double())
    assert weights[1, :, 0].tolist() == [1, 0, 0]


def test_adapool_starts_half_way_and_bears_a_set_of_zeros():
    module = AdaPooling()
    assert module.beta.sigmoid().item() == 0.5
    zeros = torch.zeros(1, 3, DIM, requires_grad=True)
    (grad,) = torch.autograd.grad(module(zeros, torch.tensor([3])).sum(), zeros)
    torch.testing.assert_close(grad, torch.full_like(grad, 1 / 3))


def test_lip_starts_as_the_mean_and_its_scale_has_a_gradient():
    torch.manual_seed(0)
    module = LocalImportancePooling(DIM)
    pooled = module(SETS.float(), LENGTHS)
    torch.testing.assert_close(pooled, build_pooling("mean", DIM)(SETS.float(), LENGTHS))
    (grad,) = torch.autograd.grad(pooled.square().sum(), module.scale)
    assert grad.ne(0).all()
