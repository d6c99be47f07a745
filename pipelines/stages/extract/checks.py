"""Checks of existing feature shards: find the broken ones, retry images that failed.

The shards in question are removed, and the stage then makes them again; all others stay.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.runtime.cli import say
from pipelines.runtime.progress import progress_bar
from pipelines.stages.extract.plan import Split
from preprocessing.extraction.extract import NO_CAPTION
from preprocessing.shards.index import ShardError, read_index, verify_shard
from preprocessing.shards.reader import verify_table
from preprocessing.storage.mirror import Mirror, sidecar_path, table_path

Check = Callable[[Sequence[Split], Mirror], None]


def verify(splits: Sequence[Split], mirror: Mirror) -> None:
    """Read all feature shards, compare hashes, positions and sizes with their sidecars, and remove the broken ones.

    The stage itself only compares the size of a shard. A broken copy of a shard that is on the storage as well is
    downloaded again. Raises StorageError if the storage does not answer.
    """
    there = [path for split in splits for path in _readable(split, mirror)]
    broken: dict[Path, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress_bar("verify", len(there), "shards") as bar:
        for path, reason in zip(there, pool.map(lambda path: _reason(path, mirror), there), strict=True):
            bar.update()
            if reason is not None:
                broken[path] = reason
    say(f"verify: {len(broken)} of the shards that are there are broken")
    _remove(broken, mirror)


def retry_failed(splits: Sequence[Split], mirror: Mirror) -> None:
    """Remove the feature shards that lack images with captions, which could not be used, to try these again."""
    failed: dict[Path, str] = {}
    for split in splits:
        split.directory.pull(lambda name: name.endswith(".json"))
        for path in _readable(split, mirror):
            skipped = read_index(path).skipped
            images = [item for item in skipped if "caption_id" not in item and item["reason"] != NO_CAPTION]
            if images:
                failed[path] = f"lacks {len(images)} images, the first {images[0]['image']}: {images[0]['reason']}"
    say(f"retry: {len(failed)} shards lack images")
    _remove(failed, mirror)


# Options of the command, which print what they would do in a dry run.
SHARD_CHECKS: Mapping[str, Check] = {"verify": verify, "retry-failed": retry_failed}


def _remove(shards: Mapping[Path, str], mirror: Mirror) -> None:
    """Print shards with their reasons, and remove them here and on the storage unless it is a dry run."""
    for path, reason in shards.items():
        say(f"  {path}: {reason}")
        if not mirror.is_read_only:
            # The sidecar first: without it the shard counts as not there.
            mirror.drop(sidecar_path(path), table_path(path), path)


def _readable(split: Split, mirror: Mirror) -> list[Path]:
    """Return the complete shards of a split; in a dry run, which downloads nothing, those on this machine."""
    missing = split.missing()
    complete = [path for path in split.shards if path not in missing]
    if not mirror.is_read_only:
        return complete
    here = [path for path in complete if path.is_file() and sidecar_path(path).is_file()]
    if len(here) < len(complete):
        say(f"{split.name}: {len(complete) - len(here)} shards are on the storage alone, and not read")
    return here


def _reason(shard: Path, mirror: Mirror) -> str | None:
    """Return why a shard is broken, None if it is not; a broken copy is downloaded from the storage again first."""
    reason = _defect(shard, mirror)
    if reason is None or mirror.address is None or mirror.is_read_only:
        return reason
    for path in (sidecar_path(shard), table_path(shard), shard):
        path.unlink(missing_ok=True)
    return _defect(shard, mirror)


def _defect(shard: Path, mirror: Mirror) -> str | None:
    with mirror.pinned_shard(shard):
        try:
            verify_shard(shard, deep=True)
            verify_table(shard)
        except (ShardError, OSError) as error:
            return str(error)
    return None
