"""Evaluations of models, alone, as ensembles and against each other. The names are those of the outputs."""

from dataclasses import dataclass

NAME = "evaluate"
# Raised when the same model and data would give other outputs.
VERSION = 7
# Raised when the same model and training split would give another hub correction.
CORRECTION_VERSION = 1
GALLERY, PICTURES = "gallery", "pictures"


@dataclass(frozen=True)
class Rsum:
    """The RSUM of a model, its 95 % interval, and that of a random ranking."""

    value: float
    low: float
    high: float
    chance: float

    def __str__(self) -> str:
        return f"RSUM {self.value:.1f} ({self.low:.1f} to {self.high:.1f}), chance {self.chance:.1f}"
