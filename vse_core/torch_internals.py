"""All uses of torch's undocumented parts: why each is needed, and the public API that would replace it.

tests/vse_core/test_torch_internals.py fails when one of them is gone, or when its public replacement is there.
"""

from typing import Any

import torch
from torch import Tensor


def step_if_finite(optimizer: torch.optim.Optimizer, value: Tensor) -> None:
    """Step the optimiser if a number on the device is finite; a fused optimiser sees to it there, and no host waits.

    `torch.amp.GradScaler.step` does the same, but only with a gradient scale, which full precision does not have.
    Would be replaced by: a `found_inf` parameter of `Optimizer.step`.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        fused: Any = optimizer
        fused.grad_scale, fused.found_inf = None, (value - value).float().nan_to_num(nan=1.0)
        optimizer.step()
        del fused.grad_scale, fused.found_inf
    elif value.isfinite():
        optimizer.step()


def onednn_linear(rows_MF: Tensor, weight_DF: Tensor, bias_D: Tensor | None) -> Tensor:
    """Return `nn.functional.linear` of float32 on the CPU by oneDNN, without a gradient.

    `nn.functional.linear` takes MKL, which is half as fast on AMD's processors. Would be replaced by: a setting that
    chooses oneDNN for float32 (`torch.backends.mkldnn.matmul.fp32_precision` does for bf16 alone).
    """
    rows_MD: Tensor = torch.ops.mkldnn._linear_pointwise(rows_MF, weight_DF, bias_D, "none", [], "")
    return rows_MD
