"""RSUM with what it has to be compared with: its interval, and chance."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rsum:
    """The RSUM of a model, its 95 % interval, and that of a random ranking."""

    value: float
    low: float
    high: float
    chance: float

    def __str__(self) -> str:
        return f"RSUM {self.value:.1f} ({self.low:.1f} to {self.high:.1f}), chance {self.chance:.1f}"
