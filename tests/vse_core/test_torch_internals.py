"""The undocumented parts of torch that we stand on are as we need them, and still have no public replacement."""

import inspect

import pytest
import torch
from torch import nn

from vse_core.torch_internals import onednn_linear, step_if_finite


def test_optimisers_have_no_public_flag_for_overflow() -> None:
    assert "found_inf" not in inspect.signature(torch.optim.AdamW.step).parameters, (
        "Optimizer.step takes found_inf now: pass it in torch_internals.step_if_finite"
    )


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_is_not_finite_changes_nothing(fused: bool) -> None:
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=fused)
    assert getattr(optimizer, "_step_supports_amp_scaling", False) == fused
    before = layer.weight.detach().clone()
    for value in torch.tensor([torch.nan, torch.inf, -torch.inf, 3.0]):
        layer(torch.ones(3)).sum().backward()
        step_if_finite(optimizer, value)
        assert layer.weight.equal(before) != value.isfinite()
    assert not hasattr(optimizer, "found_inf")


def test_onednn_multiplies_as_pytorch_does() -> None:
    rows, weight, bias = torch.randn(5, 7), torch.randn(3, 7), torch.randn(3)
    torch.testing.assert_close(onednn_linear(rows, weight, bias), nn.functional.linear(rows, weight, bias))
