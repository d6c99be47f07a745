"""Products by oneDNN against those of PyTorch, forwards and backwards."""

from typing import Any

import pytest
import torch
from torch import nn

from vse_core import products
from vse_core.products import Linear, linear, product
from vse_core.torch_internals import onednn_linear

PREFERS = products._prefers_onednn


@pytest.mark.parametrize(
    ("processor", "prefers"),
    [
        ({"cpu_name": "AMD EPYC", "avx512_f": True}, True),
        ({"cpu_name": "AMD EPYC", "avx512_f": False}, False),
        ({"cpu_name": "Intel Xeon", "avx512_f": True}, False),
    ],
)
def test_the_library_is_that_of_the_processor(
    processor: dict[str, Any], prefers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert PREFERS.__wrapped__() is prefers


@pytest.fixture(autouse=True, params=[True, False], ids=["oneDNN", "MKL"])
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, whatever the processor of the tests prefers."""
    monkeypatch.setattr(products, "_prefers_onednn", lambda: request.param)


@pytest.mark.parametrize("rows", [1, 3, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_matrices_however_they_lie_in_memory(rows: int, dtype: torch.dtype) -> None:
    left, right = torch.randn(rows, 40, dtype=dtype), torch.randn(40, 7, dtype=dtype)
    for a, b in (
        (left, right),
        (left.t().contiguous().t(), right),
        (left, right.t().contiguous().t()),
        (left, right[:, :1]),
    ):
        exact = a.double() @ b.double()
        torch.testing.assert_close(product(a, b).double(), exact, rtol=0, atol=1e-5)


def test_a_product_of_nothing() -> None:
    assert product(torch.zeros(0, 4), torch.zeros(4, 3)).shape == (0, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (0, 6), (6,)])
def test_a_linear_layer_is_that_of_pytorch(shape: tuple[int, ...], bias: bool) -> None:
    ours = Linear(6, 4, bias=bias)
    theirs = nn.Linear(6, 4, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    found = []
    for layer in (ours, theirs):
        inputs = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()
        outputs = layer(inputs)
        (outputs * torch.arange(outputs.numel()).view_as(outputs)).sum().backward()
        found.append([outputs, inputs.grad, *(weight.grad for weight in layer.parameters())])
    torch.testing.assert_close(*found)


def test_a_frozen_layer_passes_the_gradient_on() -> None:
    layer = Linear(6, 4).requires_grad_(False)
    inputs = torch.ones(2, 6, requires_grad=True)
    layer(inputs).sum().backward()
    torch.testing.assert_close(inputs.grad, layer.weight.sum(dim=0).expand(2, -1))
    assert layer.weight.grad is None


def test_autocast_decides_the_type() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.ones(2, 3), torch.ones(4, 3)).dtype == torch.bfloat16


def test_few_sizes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is kept for each of them."""
    asked = set()

    def noted(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        asked.add((*rows.shape, *weight.shape))
        return onednn_linear(rows, weight, bias)

    monkeypatch.setattr(products, "_prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "onednn_linear", noted)
    left, right = torch.randn(5000, 8), torch.randn(8, 8)
    for rows in range(1, 5001, 7):
        assert product(left[:rows], right).shape == (rows, 8)
        product(left[:rows].t(), left[:rows])
    assert 0 < len(asked) < 120


def test_products_keep_all_bits_of_float32() -> None:
    # In bfloat16 or TF32 the last one would be lost.
    assert product(torch.full((2, 1), 4097.0), torch.ones(1, 2)).tolist() == [[4097.0, 4097.0]] * 2
