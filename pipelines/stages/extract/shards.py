"""Shared parts of the stages that make shards: complete shards, plans and progress."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import ShardSet, StageDir, StagePlan, fingerprint
from pipelines.tracking import Tracker
from preprocessing.shards import ShardError, verify_shard
from preprocessing.storage.mirror import sidecar_path

# The path of a file that belongs to a shard besides its sidecar.
Extra = Callable[[Path], Path]


def shard_plan(
    name: str,
    root: Path,
    splits: Mapping[str, ShardSet],
    made: Callable[[], str],
    to_make: str,
    extra: Extra | None = None,
) -> StagePlan:
    """Return the plan of a stage that makes shards; `outputs` maps each split to its directory of shards.

    `made` summarises the output in a line, and is called where the stage is complete; `to_make` is a line about the
    work.
    """
    total = sum(len(shards.paths) for shards in splits.values())
    done = total - sum(len(missing_shards(shards.directory, shards.paths, extra)) for shards in splits.values())
    complete = done == total and all(shards.directory.is_complete() for shards in splits.values())
    return StagePlan(
        name=name,
        fingerprint=fingerprint([shards.fingerprint for shards in splits.values()]),
        directory=root / name,
        total=total,
        # All shards without their manifest: the stage still has to write it.
        done=total if complete else min(done, total - 1),
        unit="shards",
        size=made() if complete else to_make,
        outputs={split: shards.directory.path for split, shards in splits.items()},
        shards=splits,
    )


def missing_shards(directory: StageDir, shards: Iterable[Path], extra: Extra | None = None) -> list[Path]:
    """Return the shards that are not complete, neither here nor on the storage."""
    stored, expected = directory.stored(), directory.fingerprint
    return [
        path
        for path in shards
        if not (is_complete(path, expected, extra) or {file.name for file in shard_files(path, extra)} <= stored)
    ]


def shard_files(shard: Path, extra: Extra | None = None) -> tuple[Path, ...]:
    """Return the files of a shard, its sidecar as the last one."""
    return (shard, *([] if extra is None else [extra(shard)]), sidecar_path(shard))


def is_complete(shard: Path, expected: str, extra: Extra | None = None) -> bool:
    """Return whether a shard is here as its sidecar describes it, and of the inputs with this fingerprint."""
    try:
        return verify_shard(shard, deep=False).fingerprint == expected and (extra is None or extra(shard).is_file())
    except ShardError:
        return False


def track_progress(done: Iterable[int], total: int | None, stage: str, unit: str, tracker: Tracker) -> None:
    """Show and log the progress of a stage.

    `done` yields the units of each finished piece of work; the rate is logged as ``<stage>/<unit>_per_second``.
    """
    with progress_bar(stage, total, unit) as bar:
        start = time.monotonic()
        for count in done:
            bar.update(count)
            tracker.log_metrics({f"{stage}/{unit}_per_second": bar.n / (time.monotonic() - start)}, step=bar.n)
