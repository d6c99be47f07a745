"""The results of a protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The results of a protocol.

    Attributes:
        name: of the protocol.
        metrics: flat names and values, each beginning with the protocol's name, but for plain retrieval.
        figures: file name without ending -> figure.
        files: written into the directory that the protocol was given; they become artifacts.
        summary: a few words for the final table.
    """

    name: str
    metrics: dict[str, float]
    summary: str
    figures: dict[str, Figure] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
