"""What every loss returns."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class LossResult:
    """A loss and what it is made of.

    Attributes:
        total: the scalar to minimise, in float32.
        parts: named scalars for logging, detached.
    """

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
