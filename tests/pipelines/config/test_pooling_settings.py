"""Which aggregators may pool several projections side by side."""

from __future__ import annotations

import pytest
import torch

from pipelines.schema.pooling import OF_EACH_DIMENSION, is_of_each_dimension
from vse_core import registry
from vse_core.pooling import POOLINGS, build_pooling

DIM = 8


def pools_side_by_side(name: str) -> bool:
    """Oracle: the result for two sets side by side is the two results side by side."""
    torch.manual_seed(0)
    pooling = build_pooling(name, DIM)
    for parameter in pooling.parameters():  # some start at zero, where they have no effect
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    sets, lengths = torch.rand(2, 3, 5, DIM), torch.tensor([5, 1, 3])
    try:
        together = pooling(torch.cat([*sets], dim=-1), lengths)
    except RuntimeError:
        return False  # its weights have the width of one
    return torch.allclose(together, torch.cat([pooling(each, lengths) for each in sets], dim=-1), atol=1e-6)


@pytest.mark.parametrize("name", POOLINGS)
def test_the_aggregators_of_each_dimension_are_those_that_pool_side_by_side(name: str) -> None:
    assert is_of_each_dimension(name) == (name in OF_EACH_DIMENSION) == pools_side_by_side(name)


def test_an_aggregator_of_a_plugin_is_one_if_it_is_not_told_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._ADDED, "pooling", {"median": lambda scale: None, "wide": lambda dim: None})
    assert is_of_each_dimension("median")
    assert not is_of_each_dimension("wide")
