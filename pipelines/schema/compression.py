"""The form of an index's vectors, by name: fewer dimensions, smaller numbers, or both."""

import re
from dataclasses import dataclass
from typing import Literal, Self

_FORM = re.compile(r"pca([1-9]\d{0,4})(?:-(int8|float16))?|(int8|float16)")


@dataclass(frozen=True)
class Compression:
    """Dimensions that are kept, the one of hub correction among them (None: all), and the numbers they are kept in."""

    width: int | None = None
    number: Literal["float32", "float16", "int8"] = "float32"

    @classmethod
    def parse(cls, name: str | None) -> Self:
        """Read "pca128-int8", "pca256", "float16" and the like, or None for full vectors; ValueError else."""
        if name is None:
            return cls()
        match = _FORM.fullmatch(name)
        if match is None or match[1] == "1":
            raise ValueError(
                f"is not a compression: write pca128-int8 (any width from 2), pca256, int8, float16; got {name!r}"
            )
        number = match[2] or match[3] or "float32"
        return cls(int(match[1]) if match[1] else None, number)  # type: ignore[arg-type]

    def require(self, vectors: int, dim: int) -> None:
        """Raise ValueError if a number of vectors of D dimensions is too small for the width, or D is."""
        if self.width is not None and self.width > dim:
            raise ValueError(f"pca{self.width}: the model's vectors have {dim:,} dimensions; name at most as many")
        if self.width is not None and self.width > vectors:
            raise ValueError(
                f"pca{self.width}: {vectors:,} vectors are too few to find {self.width} dimensions; name fewer, or "
                "compress by int8 alone"
            )


def compression_name(name: str) -> str:
    """Return a name that can be read as a compression; ValueError else."""
    Compression.parse(name)
    return name
