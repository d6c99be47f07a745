"""Stage 1, extract: every image of the training and evaluation splits through the extractor, into feature shards.

Each split has its own directory, `<work_dir>/extract/<split>/<fingerprint>/`: evaluating on another split never repeats
the work on the training split. A split that has grown gets a new directory, which reuses the shards of the old one that
contain the same records.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.config.features import ImportedFeatures
from pipelines.runtime import cluster
from pipelines.runtime.commands import command
from pipelines.runtime.file_hashes import kept_hashes
from pipelines.runtime.stage import (
    Plans,
    ShardSet,
    StageDir,
    StageError,
    StagePlan,
    StageReport,
    disk_errors,
    fingerprint,
)
from pipelines.stages.extractor_identity import extractor_bytes, extractor_identity, extractor_options
from pipelines.stages.shard_reuse import Version, reuse_shards
from pipelines.stages.shard_work import missing_shards, shard_plan, track_progress
from pipelines.tracking import Tracker
from preprocessing import extraction
from preprocessing.datasets import Dataset, DatasetError, build_dataset
from preprocessing.datasets.record import ArchivedDataset
from preprocessing.features import ExtractorError, build_extractor
from preprocessing.features.imported import check_image_names
from preprocessing.shards import read_index
from preprocessing.shards.index import ShardIndex, shard_path
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import sidecar_path, table_path

log = logging.getLogger(__name__)

NAME = "extract"
# Of an actor: while one shard is written and sent, the next is decoded and computed.
_SHARDS_AT_ONCE = 2
# Images of a shard that may kill processes before it is memory itself that is short.
_MOST_KILLERS = 10
# For small files at once, each of which takes the time of a request.
_REQUESTS = 16


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:  # noqa: ARG001 (the first stage has none)
    """Find the shards that are there; `outputs` maps each split to its directory of shards.

    Raises DatasetError if the data set is not as configured, and ConfigError where the extractor cannot be built, or
    a shard is to be smaller than an image's features.
    """
    splits = splits_of(config)
    archives = sum(len(split.summary.archives) for split in splits)
    shards = {split.name: split.shard_set for split in splits}
    images, captions = sum(each.images for each in shards.values()), sum(each.captions for each in shards.values())
    to_make = f"{archives:,} archives" if archives else f"{images:,} images, {captions:,} captions"
    return shard_plan(NAME, config.work_dir, shards, lambda: _in_words(*_totals(splits)), to_make)


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:  # noqa: ARG001
    """Make the missing shards on a pool of Ray actors, then write each split's manifest.

    Raises StageError if more images of a split were skipped than `features.max_skipped` allows, if two images have a
    name in common by which published features are joined, or if several actors died of the same shard, and ClusterError
    where Ray cannot be reached.
    """
    splits = splits_of(config)
    tracker.log_params({"features": config.features.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.directory.fingerprint for split in splits})
    reused = [reuse_shards(split.shard_set, split.version) for split in splits]
    if any(split.missing() for split in splits):
        if isinstance(config.features, ImportedFeatures):
            _check_image_names(splits)
        _make_shards(config, splits, tracker)
    for split, count in zip(splits, reused, strict=True):
        _write_manifest(split, count)
    counts, skipped = _totals(splits)
    tracker.log_metrics({f"extract/{name}": float(value) for name, value in counts.items()})
    tracker.log_dict(skipped, "set_aside.json")
    return StageReport(NAME, config.work_dir / NAME, _in_words(counts, skipped))


@dataclass(frozen=True)
class Split:
    """A split of the data set and its shards."""

    name: str
    dataset: Dataset
    summary: extraction.SplitSummary
    directory: StageDir
    shards: tuple[Path, ...]
    shard_size: int
    settings: Mapping[str, Any]
    max_skipped: float

    @property
    def shard_set(self) -> ShardSet:
        """Its shards; the numbers of images and captions are 0 until the archives of a split have been read."""
        images = self.summary.images or self._counts.get("records", 0)
        captions = self.summary.captions or self._counts.get("captions", 0)
        return ShardSet(self.directory, self.shards, images, captions, self.fingerprint)

    @property
    def version(self) -> Version:
        """Identity of each shard."""
        contents = {
            path.name: fingerprint({**self.settings, "records": digest})
            for path, digest in zip(self.shards, self.summary.shards, strict=True)
        }
        return Version(fingerprint(self.settings), contents)

    @property
    def fingerprint(self) -> str:
        """Identity of what the shards contain: that of the directory, until images that had failed are added."""
        return fingerprint([self.directory.fingerprint, self.revision]) if self.revision else self.directory.fingerprint

    @property
    def revision(self) -> int:
        """Number of times that shards were made again and other images were skipped than before."""
        return int(self._manifest().get("revision", 0))

    @property
    def skipped(self) -> list[dict[str, str]] | None:
        """The skipped images and captions by the manifest; None where the split has never been complete."""
        return self._manifest().get("set_aside")

    @property
    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = self._manifest().get("counts", {})
        return counts

    def _manifest(self) -> dict[str, Any]:
        return self.directory.read_manifest() if self.directory.is_complete() else {}

    def missing(self) -> set[Path]:
        """Return the shards that are not complete, neither here nor on the storage."""
        return set(missing_shards(self.directory, self.shards))

    def missing_specs(self) -> Iterator[extraction.ShardSpec]:
        """Yield the contents of the missing shards; reads the records of the split again, one shard at a time.

        The records of archives are read by the actors.
        """
        missing, directory = self.missing(), self.directory.create()
        made_of, root = self.directory.fingerprint, self.dataset.root
        if self.summary.archives:
            specs = extraction.archive_specs(self.summary.archives, directory, made_of, root)
        else:
            records = self.dataset.records(self.name)
            specs = extraction.shard_specs(records, directory, self.shard_size, made_of, root)
        yield from (spec for spec in specs if spec.path in missing)


class _Extraction:
    """Actor that holds the extractor, and makes a shard while the one before it is written and sent."""

    def __init__(
        self, name: str, options: dict[str, Any], batch_size: int, threads: int, timeout: float, mirror: Mirror
    ) -> None:
        self._name, self._options = name, options
        self._batch_size, self._threads, self._timeout = batch_size, threads, timeout
        self._mirror = mirror

    def prepare(self) -> None:
        """Load the extractor, once for all shards."""
        import torch

        torch.set_num_threads(self._threads)
        self._extractor = build_extractor(self._name, **self._options)

    def work(self, spec: extraction.ShardSpec) -> Iterator[int | None]:
        """Make a shard; yield None when the next one may begin, and the number of records in the end."""
        drawn = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(self._make, spec, drawn.set)
            made.add_done_callback(lambda _: drawn.set())
            drawn.wait()
            yield None
            yield made.result()

    def _make(self, spec: extraction.ShardSpec, drawn: Callable[[], None]) -> int:
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        records = tuple(spec.records)
        spec = replace(spec, records=records)
        extraction.extract_shard(spec, self._extractor, self._batch_size, self._threads, self._timeout, drawn)
        # The sidecar last: on the storage, too, it declares the shard complete.
        self._mirror.push(spec.path, table_path(spec.path), sidecar_path(spec.path))
        self._mirror.make_room()
        return len(records)


def _check_image_names(splits: Iterable[Split]) -> None:
    try:
        check_image_names(record.image_uri for split in splits for record in split.dataset.records(split.name))
    except ExtractorError as error:
        raise StageError(f"{NAME}: {error}") from error


def _make_shards(config: PipelineConfig, splits: list[Split], tracker: Tracker) -> None:
    cluster.connect(config.ray.address)
    import ray

    from pipelines.runtime.actor_pool import map_unordered

    features = config.features
    actor = ray.remote(_Extraction).options(
        num_cpus=features.cpus_per_actor,
        num_gpus=features.gpus_per_actor,
        max_concurrency=_SHARDS_AT_ONCE,
        runtime_env={"env_vars": cluster.KEEP_MEMORY},
    )
    threads = max(1, int(features.cpus_per_actor))
    sizes = (features.batch_size, threads, features.image_timeout)
    arguments = (features.extractor, extractor_options(features), *sizes, config.mirror)
    missing = sum(len(split.missing()) for split in splits)
    specs = chain.from_iterable(split.missing_specs() for split in splits)
    done = map_unordered(
        start=lambda: actor.remote(*arguments),
        actors=min(features.actors, missing),
        items=specs,
        describe=lambda spec: f"shard {spec.path}",
        retry=after_death,
    )
    try:
        with disk_errors(NAME, config.work_dir):
            track_progress(done, _images_to_do(splits), NAME, "images", tracker)
    except (ExtractorError, DatasetError) as error:
        raise StageError(f"{NAME}: {error}") from error


def after_death(spec: extraction.ShardSpec, deaths: int) -> extraction.ShardSpec | None:
    """Repeat a shard of which a process died: as it was, then image by image, then without the image it died of."""
    from pipelines.runtime.actor_pool import MOST_DEATHS

    if deaths < MOST_DEATHS:
        return replace(spec, one_by_one=deaths == MOST_DEATHS - 1)
    if not spec.loading_note.is_file() or len(spec.killers) == _MOST_KILLERS:
        return None
    killer = os.fsdecode(spec.loading_note.read_bytes())
    spec.loading_note.unlink()
    log.warning("%s: skipped, %s", killer, extraction.KILLED)
    return replace(spec, killers=(*spec.killers, killer))


def _images_to_do(splits: Iterable[Split]) -> int | None:
    """Return the images of the missing shards; None where archives do not say how many they have."""
    images: list[int | None] = []
    for split in splits:
        missing = split.missing()
        if split.summary.archives:
            shards = zip(split.shards, split.summary.archives, strict=True)
            to_read = [archive for path, archive in shards if path in missing]
            with ThreadPoolExecutor(_REQUESTS) as pool:
                images += pool.map(lambda archive: archive.images(), to_read)
        else:
            sizes = [split.shard_size] * len(split.shards)
            sizes[-1] = split.summary.images - split.shard_size * (len(sizes) - 1)
            images += [size for path, size in zip(split.shards, sizes, strict=True) if path in missing]
    known = [size for size in images if size is not None]
    return sum(known) if len(known) == len(images) else None


def _write_manifest(split: Split, reused: int = 0) -> None:
    """Write the manifest of a split from its sidecars; raises StageError if too many of its images were skipped."""
    split.directory.pull(lambda name: name.endswith((".json", ".parquet")))
    indices = [read_index(path) for path in split.shards]
    skipped = [item for index in indices for item in index.skipped]
    counts = {
        "records": split.summary.images or sum(_records_of(index) for index in indices),
        "images": sum(index.count for index in indices),
        "captions": sum(sum(index.caption_counts) for index in indices),
        "bytes": sum(index.bytes for index in indices),
        "shards": len(indices),
        "shards_taken_over": reused,
    }
    lacking = counts["records"] - counts["images"]
    if not counts["images"] or lacking > split.max_skipped * counts["records"]:
        raise StageError(
            f"{NAME}: {lacking:,} of the {counts['records']:,} images of {split.name} were skipped "
            f"({_by_reason(skipped)}), and features.max_skipped allows {split.max_skipped:.0%}, but never all: check "
            f"the data set and run `{command('extract', '--retry-failed')}` with the same options, or raise the limit, "
            "which makes no shard again"
        )
    revision = split.revision + (split.skipped not in (None, skipped))
    content = {"split": split.name, "counts": counts, "set_aside": skipped, "revision": revision}
    files = [file for path in split.shards for file in (path, table_path(path), sidecar_path(path))]
    split.directory.complete(content, [file.name for file in files if file.is_file()], pushed=True)


def _records_of(index: ShardIndex) -> int:
    """Return the number of records that a shard was made of: its samples, and those that it lacks altogether."""
    return len(set(index.keys).union(item["key"] for item in index.skipped))


def _in_words(counts: Mapping[str, int], skipped: Iterable[Mapping[str, str]]) -> str:
    """Return one line for the final table."""
    return (
        f"{counts['images']:,} images, {counts['captions']:,} captions, {counts['bytes'] / 1e6:,.0f} MB; "
        f"skipped: {_by_reason(skipped)}"
    )


def _totals(splits: Iterable[Split]) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return the counts of several splits together, and all skipped items, by their manifests."""
    counts: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    for split in splits:
        manifest = split.directory.read_manifest()
        counts.update(manifest["counts"])
        skipped.extend({"split": split.name, **item} for item in manifest["set_aside"])
    return {**counts, "set_aside": len(skipped)}, skipped


def _by_reason(skipped: Iterable[Mapping[str, str]]) -> str:
    reasons = Counter(item["reason"] for item in skipped)
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()) or "nothing"


def splits_of(config: PipelineConfig) -> list[Split]:
    """Return the splits to extract, each with the fingerprint of its records, the extractor and the settings."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    features = config.features
    settings = {
        "format": extraction.FORMAT,
        "extractor": extractor_identity(features, config.mirror),
        # Which images share a batch can change the last bit of their features.
        "batch_size": features.batch_size,
        **features.limits,
        "shard_size": (shard_size := _shard_size(config, dataset)),
    }
    splits = []
    for name in dict.fromkeys((config.dataset.train_split, config.dataset.eval_split)):
        described = json.dumps({"format": config.dataset.format, **config.dataset.options()})
        summary = _summary(described, name, shard_size, config.work_dir, config.mirror.is_read_only)
        identity = fingerprint({**settings, "records": summary.digest})
        directory = StageDir(config.work_dir, f"{NAME}/{name}", identity, config.mirror)
        shards = tuple(shard_path(directory.path, number) for number in range(len(summary.shards)))
        splits.append(Split(name, dataset, summary, directory, shards, shard_size, settings, features.max_skipped))
    return splits


def _shard_size(config: PipelineConfig, dataset: Dataset) -> int:
    """Return the images in a shard: the configured number, fewer where its bytes are limited, 0 where archives say."""
    features = config.features
    if isinstance(dataset, ArchivedDataset):
        if features.shard_mb is not None:
            raise ConfigError("features.shard_mb: each archive of this data set becomes a shard; leave it out")
        return 0
    if features.shard_mb is None:
        return features.shard_size
    fit = int(features.shard_mb * 1e6 / extractor_bytes(features, config.dataset, dataset, config.mirror))
    if not fit:
        raise ConfigError(f"features.shard_mb: an image's features are larger than {features.shard_mb:g} MB; raise it")
    return min(features.shard_size, fit)


@lru_cache(maxsize=8)
def _summary(dataset: str, split: str, shard_size: int, work_dir: Path, is_dry_run: bool) -> extraction.SplitSummary:
    """Count a split's records, once in a process: all stages of a run see the data as it was at the start."""
    with kept_hashes(work_dir, is_dry_run) as hashes:
        return extraction.summarize(build_dataset(**json.loads(dataset)), split, shard_size, hashes)
