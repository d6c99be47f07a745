"""Write the tables of the README from the recorded results; `--check` says whether they are up to date.

Run: python tests/benchmarks/readme.py
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"
RESULTS = Path(__file__).with_name("results")

# Measured once on the same features with the same embedding size: see the README's text around the table.
CCA_RSUM, RELEASED_RSUM = 244.4, 228.0


def quality_table() -> str:
    """Retrieval on the development split of Flickr8k."""
    result = _read("flickr8k")
    metrics = result["metrics"]
    recalls = [[f"{metrics[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)] for way in ("i2t", "t2i")]
    epochs = len(result["rsum_by_epoch"])
    return _table(
        ["", "image to text R@1 / 5 / 10", "text to image R@1 / 5 / 10", "RSUM"],
        [
            ["chance", "", "", f"{result['chance_rsum']:.1f}"],
            ["linear CCA on the same features", "21.2 / 47.3 / 59.2", "17.8 / 42.3 / 56.6", f"{CCA_RSUM}"],
            ["VSE-infinity, released code, 10 epochs", "", "", f"{RELEASED_RSUM:.0f}"],
            [
                f"**this pipeline**, {epochs} epochs",
                *(" / ".join(way) for way in recalls),
                f"**{metrics['rsum']:.1f}**",
            ],
        ],
    )


def speed_table() -> str:
    """What is fast, and against what."""
    reader, training = _read("reader"), _read("training")
    grids = reader["grid 49x1280"]["ways"]["random, TrainLoader"]
    augmented = reader["grid 49x1280"]["ways"]["random, TrainLoader, augmented"]
    rows = [
        [
            "samples from shards, random access",
            f"{grids['samples_per_second']:,.0f} a second",
            f"{grids['times_webdataset']:.1f} x webdataset, in order",
        ],
        [
            "the same, augmented",
            f"{augmented['samples_per_second']:,.0f} a second",
            f"{augmented['times_webdataset']:.1f} x webdataset, in order",
        ],
        [
            "training step, VSE-infinity, 49 x 1280, D = 512, B = 128",
            f"{training['seconds_per_step']:.2f} s",
            f"{100 * training['share_waiting_for_data']:.2f} % of it waiting for data",
        ],
    ]
    return _table(["what", "measured", "compared"], rows)


TABLES: dict[str, Callable[[], str]] = {"quality": quality_table, "speed": speed_table}


def rewritten(text: str) -> str:
    """The README with every marked table made anew."""
    for name, table in TABLES.items():
        found = re.search(rf"<!-- {name} -->\n.*?<!-- end -->", text, re.DOTALL)
        if found is None:
            raise SystemExit(f"{README} has no block <!-- {name} --> ... <!-- end -->")
        text = text.replace(found[0], f"<!-- {name} -->\n{table()}\n<!-- end -->")
    return text


def _read(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Rewrite the README, or only compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the README is not up to date")
    arguments = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    new = rewritten(text)
    if arguments.check and new != text:
        sys.exit("README.md: the tables are not those of the recorded results; run tests/benchmarks/readme.py")
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
