"""The result of a loss."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class LossResult:
    """A loss: the scalar to minimise, in float32, and named scalars that it is made of, detached, for logging."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
