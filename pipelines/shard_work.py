"""What the stages that make shards share: which shards are there already, and how the work goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from preprocessing.shards import ShardError, verify_shard

if TYPE_CHECKING:
    from pipelines.tracking import Tracker


def is_whole(path: Path, expected: str) -> bool:
    """Whether a shard is there as its sidecar says, and of these inputs; a damaged one is made again."""
    try:
        return verify_shard(path, deep=False).fingerprint == expected
    except ShardError:
        return False


def follow(done: Iterable[int], total: int, stage: str, unit: str, tracker: Tracker) -> None:
    """Show and log how a stage goes on.

    Args:
        done: for each piece of work, when it is finished, the units it was made of.
        total: units in all.
        stage: name of the stage.
        unit: what is counted, in the plural: "images".
        tracker: takes the rate as ``<stage>/<unit>_per_second``.
    """
    with tqdm(total=total, desc=stage, unit=f" {unit}", mininterval=bar_interval(), smoothing=0) as bar:
        start = time.monotonic()
        for count in done:
            bar.update(count)
            tracker.log_metrics({f"{stage}/{unit}_per_second": bar.n / (time.monotonic() - start)}, step=bar.n)


def bar_interval() -> float:
    """Seconds between two states of a progress bar: a log that is no terminal gets a line every ten seconds."""
    return 0.5 if sys.stderr.isatty() else 10.0
