"""What the stages that make shards share: which shards are there already, and how the work goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import StageDir, StagePlan, fingerprint
from preprocessing.shards import ShardError, verify_shard

if TYPE_CHECKING:
    from pipelines.tracking import Tracker


class ShardedSplit(Protocol):
    """A split on its way into shards, with a directory of its own."""

    @property
    def name(self) -> str:
        """Name of the split."""

    @property
    def directory(self) -> StageDir:
        """Where its shards stand."""

    @property
    def fingerprint(self) -> str:
        """Identity of what is in them."""

    @property
    def shards(self) -> Sequence[Path]:
        """All its shards, there or not."""

    def missing(self) -> Collection[Path]:
        """Shards that are not there as a whole, here or on the storage."""


def shard_plan(
    name: str, root: Path, splits: Sequence[ShardedSplit], made: Callable[[], str], to_make: str
) -> StagePlan:
    """Return the plan of a stage that makes shards; `outputs` maps each split to its directory of shards.

    Args:
        name: name of the stage.
        root: the working directory.
        splits: the splits it goes through.
        made: says in a line what the stage has made; called where it is complete.
        to_make: says in a line what it has to go through.
    """
    total = sum(len(split.shards) for split in splits)
    done = total - sum(len(split.missing()) for split in splits)
    complete = done == total and all(split.directory.is_complete() for split in splits)
    return StagePlan(
        name=name,
        fingerprint=fingerprint([split.fingerprint for split in splits]),
        directory=root / name,
        total=total,
        # All shards without their manifest: the stage still has to write it.
        done=total if complete else min(done, total - 1),
        unit="shards",
        size=made() if complete else to_make,
        outputs={split.name: split.directory.path for split in splits},
    )


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
    with progress_bar(stage, total, unit) as bar:
        start = time.monotonic()
        for count in done:
            bar.update(count)
            tracker.log_metrics({f"{stage}/{unit}_per_second": bar.n / (time.monotonic() - start)}, step=bar.n)
