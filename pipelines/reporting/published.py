"""The published results: recalls by system, features, text encoder and protocol, as the papers print them."""

import csv
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")
RECALLS = ("i2t_r01", "i2t_r05", "i2t_r10", "t2i_r01", "t2i_r05", "t2i_r10")
# Recalls are printed with one decimal, so the sum of six of them is off by at most 6 * 0.05.
_ROUNDING = 0.3


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table: `recalls` in per cent in the order of `RECALLS`, `rsum` as it is printed.

    `protocol` is a name of `vse_core.evaluation.protocols`, `text` the text encoder, `source` the paper.
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
    """Return the published rows of a protocol; there may be none."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        return [_row(entry) for entry in csv.DictReader(file) if entry["protocol"] == protocol]


def _row(entry: dict[str, str]) -> PublishedRow:
    recalls = tuple(float(entry[name]) for name in RECALLS)
    rsum, remark = float(entry["printed_rsum"]), entry["remark"]
    if abs(sum(recalls) - rsum) > _ROUNDING:
        remark = "; ".join(filter(None, [f"its recalls add up to {sum(recalls):.1f}", remark]))
    names = entry["system"], entry["features"], entry["text"], entry["protocol"]
    return PublishedRow(*names, recalls, rsum, entry["source"], remark)
