"""The published results: recalls by system, features, text encoder and protocol, as the papers print them."""

import csv
from dataclasses import dataclass
from pathlib import Path

from vse_core.evaluation.protocols import RECALLS, VIDEO_PROTOCOLS

_FILE = Path(__file__).with_name("published.csv")
_CXC_RECALLS = tuple(f"{way}_{recall}" for way in ("i2t", "t2i", "t2t", "i2i") for recall in ("r01", "r05"))
# Recalls are printed with one decimal, so the sum of six of them is off by at most 6 * 0.05.
_ROUNDING = 0.3


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table: `recalls` in per cent in the order of `recall_names`, `rsum` as it is printed.

    `protocol` is a name of the evaluation's protocols, `text` the text encoder, `source` the paper. None is a figure
    that the paper does not print.
    """

    system: str
    features: str
    text: str
    protocol: str
    recalls: tuple[float | None, ...]
    rsum: float | None
    source: str
    remark: str


def recall_names(protocol: str) -> tuple[str, ...]:
    """Return the metrics that the papers print of a protocol: recalls at 1, 5 and 10 both ways, of CxC four ways."""
    if protocol in VIDEO_PROTOCOLS:
        return tuple(name.replace("i", "v") for name in RECALLS)
    return _CXC_RECALLS if protocol == "cxc" else RECALLS


def published_rows(protocol: str) -> list[PublishedRow]:
    """Return the published rows of a protocol; there may be none."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        return [_row(entry) for entry in csv.DictReader(file) if entry["protocol"] == protocol]


def _row(entry: dict[str, str]) -> PublishedRow:
    # The file has the columns of videos under the names of images.
    recalls = tuple(_figure(entry[name.replace("v", "i")]) for name in recall_names(entry["protocol"]))
    rsum, remark = _figure(entry["printed_rsum"]), entry["remark"]
    found = [recall for recall in recalls if recall is not None]
    if rsum is not None and len(found) == len(RECALLS) and abs(sum(found) - rsum) > _ROUNDING:
        remark = "; ".join(filter(None, [f"its recalls add up to {sum(found):.1f}", remark]))
    names = entry["system"], entry["features"], entry["text"], entry["protocol"]
    return PublishedRow(*names, recalls, rsum, entry["source"], remark)


def _figure(text: str) -> float | None:
    return float(text) if text else None
