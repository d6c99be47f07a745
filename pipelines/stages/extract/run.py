"""The work of stage 1, extract: every image of the splits through the extractor, into feature shards."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import ray
import torch

from pipelines.config import PipelineConfig
from pipelines.runtime import cluster
from pipelines.runtime.actor_pool import MOST_DEATHS, ActorPool
from pipelines.runtime.commands import command
from pipelines.runtime.logs import configure_worker
from pipelines.runtime.stage import Plans, StageError, StageReport, disk_errors
from pipelines.stages.extract.identity import extractor_options
from pipelines.stages.extract.plan import NAME, Split, by_reason, in_words, splits_of, totals
from pipelines.stages.extract.shards import reuse_shards, track_progress
from pipelines.tracking import Tracker
from preprocessing.datasets import DatasetError
from preprocessing.extraction.extract import KILLED, ShardSpec, extract_shard
from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.shards.index import read_index
from preprocessing.storage.mirror import Mirror, sidecar_path, table_path

log = logging.getLogger(__name__)

# While an actor writes and sends a shard, it decodes and computes the next.
_SHARDS_AT_ONCE = 2
# Images of a shard that may kill processes before it is memory itself that is short.
_MOST_CRASHES = 10


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:  # noqa: ARG001
    """Make the missing shards on a pool of Ray actors, then write each split's manifest.

    Raises StageError if too many images were skipped (`features.max_skipped`), or several actors died of one shard, and
    ClusterError if Ray cannot be reached.
    """
    splits = splits_of(config)
    tracker.log_params({"features": config.features.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.directory.fingerprint for split in splits})
    reused = [reuse_shards(split.shard_set, split.version) for split in splits]
    missing = [split.missing() for split in splits]
    if any(missing):
        _make_shards(config, splits, missing, tracker)
    for split, count in zip(splits, reused, strict=True):
        _write_manifest(split, count)
    counts, skipped = totals(splits)
    tracker.log_metrics({f"extract/{name}": float(value) for name, value in counts.items()})
    tracker.log_dict(skipped, "skipped.json")
    return StageReport(NAME, config.work_dir / NAME, in_words(counts, skipped))


@dataclass
class _Extraction:
    """Actor that holds the extractor, and makes a shard while the one before it is written and sent."""

    name: str
    options: dict[str, Any]
    batch_size: int
    threads: int
    timeout: float
    mirror: Mirror
    run: str = ""  # in MLflow, for the log

    def prepare(self) -> None:
        """Load the extractor, once for all shards."""
        configure_worker(NAME, self.run)
        torch.set_num_threads(self.threads)
        self._extractor = build_extractor(self.name, **self.options)

    def work(self, spec: ShardSpec) -> Iterator[int | None]:
        """Make a shard; yield None when the next one may begin, and the number of records in the end."""
        drawn = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(self._make, spec, drawn.set)
            made.add_done_callback(lambda _: drawn.set())
            drawn.wait()
            yield None
            yield made.result()

    def _make(self, spec: ShardSpec, drawn: Callable[[], None]) -> int:
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        records = tuple(spec.records)
        spec = replace(spec, records=records)
        extract_shard(spec, self._extractor, self.batch_size, self.threads, self.timeout, drawn, self.mirror)
        # The sidecar last: on the storage, too, it declares the shard complete.
        self.mirror.push(spec.path, table_path(spec.path), sidecar_path(spec.path))
        self.mirror.make_room()
        return len(records)


def _make_shards(config: PipelineConfig, splits: list[Split], missing: list[set[Path]], tracker: Tracker) -> None:
    features = config.features
    cluster.connect(config.ray.address)
    actor = ray.remote(_Extraction).options(
        num_cpus=features.cpus_per_actor,
        num_gpus=features.gpus_per_actor,
        max_concurrency=_SHARDS_AT_ONCE,
    )
    threads = max(1, int(features.cpus_per_actor))
    sizes = (features.batch_size, threads, features.image_timeout)
    arguments = (features.extractor, extractor_options(features), *sizes, config.mirror, tracker.run_id)
    done = ActorPool(
        start=lambda: actor.remote(*arguments),
        size=min(features.actors, sum(map(len, missing))),
        items=chain.from_iterable(map(Split.specs, splits, missing)),
        describe=lambda spec: f"shard {spec.path}",
        retry=partial(retry_after_crash, config.mirror),
    ).results()
    try:
        with disk_errors(NAME, config.work_dir):
            track_progress(done, _images_to_do(splits, missing), NAME, "images", tracker)
    except (ExtractorError, DatasetError) as error:
        raise StageError(f"{NAME}: {error}") from error


def retry_after_crash(mirror: Mirror, spec: ShardSpec, deaths: int) -> ShardSpec | None:
    """Repeat a shard of which a process died: as it was, then image by image, then without the image it died of."""
    if deaths < MOST_DEATHS:
        return replace(spec, one_by_one=deaths == MOST_DEATHS - 1)
    marked = mirror.read(spec.marker)
    if marked is None or len(spec.crashed) == _MOST_CRASHES:
        return None
    image = os.fsdecode(marked)
    mirror.drop(spec.marker)
    log.warning("%s: skipped, %s", image, KILLED)
    return replace(spec, crashed=(*spec.crashed, image))


def _images_to_do(splits: Iterable[Split], shards: Iterable[set[Path]]) -> int | None:
    """Return the images of shards to make; None if some are archives, which are counted when they are read."""
    images = 0
    for split, missing in zip(splits, shards, strict=True):
        if split.summary.archives:
            return None
        sizes = [split.shard_size] * len(split.shards)
        sizes[-1] = split.summary.images - split.shard_size * (len(sizes) - 1)
        images += sum(size for path, size in zip(split.shards, sizes, strict=True) if path in missing)
    return images


def _write_manifest(split: Split, reused: int = 0) -> None:
    """Write the manifest of a split from its sidecars; raises StageError if too many of its images were skipped."""
    split.directory.mirror.drop_leftovers(split.shards)
    stored = split.directory.pull(lambda name: name.endswith((".json", ".parquet")))
    skipped: list[dict[str, str]] = []
    counts = dict.fromkeys(("records", "images", "captions", "bytes"), 0)
    counts |= {"shards": len(split.shards), "reused_shards": reused}
    for index in map(read_index, split.shards):
        skipped += index.skipped
        # An archive has the samples of its shard, and the records that this lacks altogether.
        counts["records"] += len({*index.keys, *(item["key"] for item in index.skipped)})
        counts["images"] += index.count
        counts["captions"] += sum(index.caption_counts)
        counts["bytes"] += index.bytes
    counts["records"] = split.summary.images or counts["records"]
    lacking = counts["records"] - counts["images"]
    if not counts["images"] or lacking > split.max_skipped * counts["records"]:
        raise StageError(
            f"{NAME}: {lacking:,} of the {counts['records']:,} images of {split.name} were skipped "
            f"({by_reason(skipped)}), and features.max_skipped allows {split.max_skipped:.0%}, but never all: check "
            f"the data set and run `{command('extract', '--retry-failed')}` with the same options, or raise the limit, "
            "which makes no shard again"
        )
    earlier = split.manifest
    # The number of times that shards were made again and other images were skipped than before.
    revision = earlier.get("revision", 0) + (earlier.get("skipped") not in (None, skipped))
    content = {"split": split.name, "counts": counts, "skipped": skipped, "revision": revision}
    files = [file for path in split.shards for file in (path, table_path(path), sidecar_path(path))]
    split.directory.complete(content, [file.name for file in files if file.is_file()], stored)
