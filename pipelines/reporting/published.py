"""What the papers report: recalls by system, features, text encoder and protocol, as they are printed there."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")
RECALLS = ("i2t_r01", "i2t_r05", "i2t_r10", "t2i_r01", "t2i_r05", "t2i_r10")
# Recalls are printed with one decimal: the sum of six of them is that far from the sum of the exact ones at most.
_ROUNDING = 0.3


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table.

    Attributes:
        system: its name.
        features: of the images.
        text: the text encoder.
        protocol: by its name in `vse_core.evaluation.protocols`.
        recalls: per cent, in the order of `RECALLS`.
        rsum: their sum as it is printed.
        source: the paper.
        remark: what is to be known about it.
    """

    system: str
    features: str
    text: str
    protocol: str
    recalls: tuple[float, ...]
    rsum: float
    source: str
    remark: str


def published_rows(protocol: str) -> list[PublishedRow]:
    """The rows of a protocol; none where the papers have none."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        return [_row(entry) for entry in csv.DictReader(file) if entry["protocol"] == protocol]


def _row(entry: dict[str, str]) -> PublishedRow:
    recalls = tuple(float(entry[name]) for name in RECALLS)
    rsum, remark = float(entry["printed_rsum"]), entry["remark"]
    if abs(sum(recalls) - rsum) > _ROUNDING:
        remark = "; ".join(filter(None, [f"its recalls add up to {sum(recalls):.1f}", remark]))
    names = entry["system"], entry["features"], entry["text"], entry["protocol"]
    return PublishedRow(*names, recalls, rsum, entry["source"], remark)
