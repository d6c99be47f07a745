"""Matrix products in float32 on the CPU by oneDNN, and linear layers made of them.

PyTorch multiplies float32 matrices with MKL, which leaves AVX-512 unused on AMD's processors: oneDNN is twice as fast
there, and as exact. Everything else (processors of Intel or without AVX-512, GPUs, other types, autocast, compiled and
exported models) is left to PyTorch.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

from vse_core.torch_internals import onednn_linear


def product(left_MK: Tensor, right_KN: Tensor) -> Tensor:
    """Return the matrix product (M, N) of what autograd does not follow."""
    if _is_for_onednn(left_MK):
        return _padded_product(left_MK, right_KN.t(), None)
    return torch.mm(left_MK, right_KN)


class Linear(nn.Linear):
    """`nn.Linear`, with the products of its forward and its backward pass by :func:`product`."""

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        """Map rows (..., F) to (..., D)."""
        return linear(inputs, self.weight, self.bias)


def linear(inputs: Tensor, weight_DF: Tensor, bias_D: Tensor | None = None) -> Tensor:
    """Return `nn.functional.linear` of rows (..., F), with the products of both passes by :func:`product`."""
    if not _is_for_onednn(inputs) or weight_DF.dtype != torch.float32:
        return nn.functional.linear(inputs, weight_DF, bias_D)
    outputs: Tensor = _Linear.apply(inputs.flatten(0, -2), weight_DF, bias_D).unflatten(0, inputs.shape[:-1])
    return outputs


class _Linear(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, rows_MF: Tensor, weight_DF: Tensor, bias_D: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows_MF, weight_DF)
        return _padded_product(rows_MF, weight_DF, bias_D)

    @staticmethod
    @override
    @once_differentiable
    def backward(ctx: Any, gradient_MD: Tensor) -> tuple[Tensor | None, ...]:
        rows_MF, weight_DF = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            product(gradient_MD, weight_DF) if needs_rows else None,
            product(gradient_MD.t(), rows_MF) if needs_weight else None,
            gradient_MD.sum(dim=0) if needs_bias else None,
        )


def _padded_product(left_MK: Tensor, right_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Return ``left @ right.T + bias``, with M and K filled up with zeros to one of few sizes.

    oneDNN keeps the last 1,024 sizes that it was asked for, with some megabytes of code and memory each.
    """
    rows, inner = _rounded(len(left_MK)), _rounded(left_MK.shape[1])
    left, right = _filled(left_MK, rows, inner), _filled(right_NK, len(right_NK), inner)
    return onednn_linear(left, right, bias_N)[: len(left_MK)]


def _filled(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Return a matrix filled up with zeros, laid out in memory as it was."""
    if matrix.shape == (rows, columns):
        return matrix
    if not matrix.is_contiguous() and matrix.t().is_contiguous():
        return _filled(matrix.t(), columns, rows).t()
    filled = matrix.new_empty(rows, columns)
    filled[: len(matrix), : matrix.shape[1]] = matrix
    filled[len(matrix) :] = 0
    filled[:, matrix.shape[1] :] = 0
    return filled


def _rounded(size: int) -> int:
    """Return the next size that is a multiple of 16, and of an eighth of its power of two."""
    step = max(16, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


def _is_for_onednn(values: Tensor) -> bool:
    return (
        values.device.type == "cpu"
        and values.dtype == torch.float32
        and values.dim() > 1
        and values.numel() > 0
        and _prefers_onednn()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.onnx.is_in_onnx_export()
    )


@cache
def _prefers_onednn() -> bool:
    """On other processors MKL is the faster one by a tenth to a quarter: nothing is filled up or laid out again."""
    processor = torch.cpu.get_capabilities()
    leaves_avx512 = processor.get("avx512_f") and not str(processor.get("cpu_name")).startswith("Intel")
    return torch.backends.mkldnn.is_available() and bool(leaves_avx512 or not torch.backends.mkl.is_available())
