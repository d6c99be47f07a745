"""The published results: figures by system, features, text encoder and protocol, as the papers print them."""

import csv
from dataclasses import dataclass
from pathlib import Path

from vse_core.evaluation.protocols import RECALLS, VIDEO_PROTOCOLS

_FILE = Path(__file__).with_name("published.csv")
_KINDS = ("objects", "attributes", "relations", "detected_objects")
# UniVSE's tables 2, 3 and 4, and Crisscrossed Captions; of other protocols the papers print recalls both ways.
_FIGURES = {
    "cxc": tuple(f"{way}_{recall}" for way in ("i2t", "t2i", "t2t", "i2i") for recall in ("r01", "r05")),
    "attack": tuple(f"{kind}_{at}" for kind in ("object", "attribute", "relation") for at in ("r01", "r05", "r10")),
    "components": tuple(f"{kind}_map" for kind in _KINDS),
    "dependencies": tuple(f"{kind}_accuracy" for kind in ("attributes", "relations")),
}
_SUMS = {"attack": "total", "components": "sum"}
# Figures are printed with one decimal at least, so each adds at most 0.05 to the error of their sum.
_ROUNDING = 0.05


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table: `figures` in per cent in the order of `figure_names`, their sum as it is printed.

    `protocol` is a name of the evaluation's protocols, `text` the text encoder, `source` the paper. None is a figure
    that the paper does not print.
    """

    system: str
    features: str
    text: str
    protocol: str
    figures: tuple[float | None, ...]
    printed_sum: float | None
    source: str
    remark: str


def figure_names(protocol: str) -> tuple[str, ...]:
    """Return the metrics that the papers print of a protocol: recalls at 1, 5 and 10 both ways of retrieval."""
    if protocol in VIDEO_PROTOCOLS:
        return tuple(name.replace("i", "v") for name in RECALLS)
    return _FIGURES.get(protocol, RECALLS)


def sum_name(protocol: str) -> str:
    """Return the metric that adds those of a protocol up."""
    return _SUMS.get(protocol, "rsum")


def published_rows(protocol: str) -> list[PublishedRow]:
    """Return the published rows of a protocol; there may be none."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        return [_row(entry) for entry in csv.DictReader(file) if entry["protocol"] == protocol]


def _row(entry: dict[str, str]) -> PublishedRow:
    figures = tuple(None if figure == "-" else float(figure) for figure in entry["figures"].split(" "))
    found = [figure for figure in figures if figure is not None]
    printed, remark = float(entry["printed_sum"]) if entry["printed_sum"] else None, entry["remark"]
    if printed is not None and len(found) == len(figures) and abs(sum(found) - printed) > _ROUNDING * len(figures):
        remark = "; ".join(filter(None, [f"its figures add up to {sum(found):.1f}", remark]))
    names = entry["system"], entry["features"], entry["text"], entry["protocol"]
    return PublishedRow(*names, figures, printed, entry["source"], remark)
