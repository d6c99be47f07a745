"""Mixed precision: autocast, and the scaling that float16's gradients need."""

from typing import Literal

import torch
from torch import Tensor

PrecisionName = Literal["float32", "tf32", "bf16", "fp16"]

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def emulates_bf16() -> bool:
    """Return whether this processor computes in bf16 by other instructions, which takes far longer than float32."""
    processor = torch.cpu.get_capabilities()
    return processor.get("architecture") == "x86_64" and not processor.get("avx512_bf16")


class MixedPrecision:
    """Matrix products in one precision; weights, similarities and losses in float32.

    Gradients of float16 would vanish below 6e-8: the loss is multiplied by a scale before the backward pass, and the
    gradients are divided by it after. A step whose gradients overflow is left out and halves the scale; 2000 steps
    without one double it (Micikevicius et al. 2018, sections 3.1 and 3.2): the `scaler`, which does nothing in other
    precisions. bfloat16 has the range of float32.

    :func:`~vse_core.precision.use_tf32` tells the GPU of ``tf32``; ``bf16`` on a GPU without it is a ValueError.
    """

    def __init__(self, name: PrecisionName = "float32", device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device).type
        if name == "bf16" and self._device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise ValueError(f"{torch.cuda.get_device_name()} does not compute in bf16; train in fp16 or float32")
        self._dtype = _TYPES.get(name)
        self.scaler = torch.amp.GradScaler(self._device, enabled=name == "fp16")

    def autocast(self) -> torch.autocast:
        """Return the context to call the model in; the loss needs none."""
        return torch.autocast(self._device, dtype=self._dtype, enabled=self._dtype is not None)

    def scale(self, like: Tensor) -> Tensor:
        """Return the factor of a step's loss on the device, 1 without scaling; call it before the scaler's update."""
        return self.scaler.scale(torch.ones_like(like))
