"""Full precision for what half is not enough for: similarities, norms and losses."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """Convert to float32; wider values stay as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def product_type(values: Tensor, default: torch.dtype) -> torch.dtype:
    """Return the type that autocast computes products of values in on their device; the default without autocast."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else default


@contextmanager
def full_precision(values: Tensor) -> Iterator[None]:
    """Keep the precision of operands in products on the values' device, within a context.

    Neither autocast nor TF32, which has the ten bits of float16, takes part in it; gradients of what is computed here
    may again be products in TF32.
    """
    # Two settings, which PyTorch begins with apart: cuDNN, and with it a GRU, may take TF32.
    products, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with torch.autocast(values.device.type, enabled=False):
        if not values.is_cuda or (products == "highest" and not cudnn):
            yield
            return
        use_tf32(False)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = cudnn


def use_tf32(allowed: bool) -> None:
    """Let GPUs multiply float32 matrices in TF32 in all the process, or forbid it; never in :func:`full_precision`."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
