"""The results of a protocol."""

from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The metrics, figures and files of a protocol, with a summary of a few words for the final table.

    Metrics begin with the protocol's name, but for plain retrieval; figures have file names without ending as keys.
    """

    name: str
    metrics: dict[str, float]
    summary: str
    figures: dict[str, Figure] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
