"""What may be done about feature shards that are there: find the broken ones, try images once more that failed.

The shards in question are removed, and the stage then makes them anew; all others stay.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.config import PipelineConfig
from pipelines.runtime.cli import Repair
from pipelines.runtime.progress import progress_bar
from pipelines.stages import extract
from pipelines.stages.shard_work import ShardedSplit
from preprocessing.extraction.extract import NO_CAPTION
from preprocessing.shards import ShardError, ShardIndex, read_index, verify_shard
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import sidecar_path


def verify(config: PipelineConfig, dry_run: bool = False) -> None:
    """Read all feature shards and remove those that are not whole.

    The stage itself takes a shard whose sidecar agrees with its size for whole; only reading it tells whether its bytes
    are still those that were written.
    """
    broken = broken_shards(extract.splits_of(config), config.mirror)
    sys.stdout.write(f"verify: {len(broken)} of the shards that are there are broken\n")
    remove(broken, config.mirror, dry_run)


def retry_failed(config: PipelineConfig, dry_run: bool = False) -> None:
    """Remove the feature shards that lack images, so that these are tried once more."""
    failed: dict[Path, str] = {}
    for split in extract.splits_of(config):
        split.directory.pull(lambda name: name.endswith(".json"))
        missing = split.missing()
        for path in split.shards:
            images = [] if path in missing else images_that_failed(read_index(path))
            if images:
                failed[path] = f"lacks {len(images)} images, the first {images[0]['image']}: {images[0]['reason']}"
    sys.stdout.write(f"retry: {len(failed)} shards lack images\n")
    remove(failed, config.mirror, dry_run)


REPAIRS = (
    Repair("verify", "read all shards, and make anew those whose bytes are not as written", verify),
    Repair("retry-failed", "make anew the shards that lack images which could not be read", retry_failed),
)


def broken_shards(splits: Sequence[ShardedSplit], mirror: Mirror) -> dict[Path, str]:
    """Read every shard and compare it with its sidecar: hash, and the place and size of all members.

    A broken copy of a shard that is on the storage as well is taken from there again.

    Returns:
        The shards that are not whole, with the reason. Those that are not there at all are no part of it.

    Raises:
        StorageError: the storage does not answer.
    """
    missing = {path for split in splits for path in split.missing()}
    there = [path for split in splits for path in split.shards if path not in missing]
    broken: dict[Path, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress_bar("verify", len(there), "shards") as bar:
        for path, reason in zip(there, pool.map(lambda path: _reason(path, mirror), there), strict=True):
            bar.update()
            if reason is not None:
                broken[path] = reason
    return broken


def images_that_failed(index: ShardIndex) -> list[dict[str, str]]:
    """What a shard lacks for a reason that may pass: images that have captions and could not be used."""
    return [item for item in index.skipped if "caption_id" not in item and item["reason"] != NO_CAPTION]


def remove(shards: Mapping[Path, str], mirror: Mirror, dry_run: bool) -> None:
    """Print shards with their reasons, and remove them here and on the storage unless it is a dry run."""
    for path, reason in shards.items():
        sys.stdout.write(f"  {path}: {reason}\n")
        if not dry_run:
            # The sidecar first: without it the shard counts as not there.
            mirror.drop(sidecar_path(path), path)


def _reason(shard: Path, mirror: Mirror) -> str | None:
    """Why a shard is not whole; None where it is, if need be once it has been copied from the storage again."""
    reason = _defect(shard, mirror)
    if reason is None or mirror.address is None:
        return reason
    for path in (sidecar_path(shard), shard):
        path.unlink(missing_ok=True)
    return _defect(shard, mirror)


def _defect(shard: Path, mirror: Mirror) -> str | None:
    with mirror.pinned_shard(shard):
        try:
            verify_shard(shard, deep=True)
        except (ShardError, OSError) as error:
            return str(error)
    return None
