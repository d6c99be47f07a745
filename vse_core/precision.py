"""Where half precision is not enough: similarities, norms and losses are computed in at least float32."""

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """The values in float32, or as they are where they are already wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def full_precision(values: Tensor) -> torch.autocast:
    """Return a context in which autocast leaves products on the values' device in the precision of their operands."""
    return torch.autocast(values.device.type, enabled=False)
