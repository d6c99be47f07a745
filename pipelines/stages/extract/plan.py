"""Stage 1, extract, without its work: the splits and their shards, as they should be and as they are there."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import Plans, ShardSet, StageDir, StagePlan, fingerprint
from pipelines.stages.extract.identity import extractor_identity
from pipelines.stages.extract.shards import Version, missing_shards, shard_plan
from pipelines.stages.stage import Stage
from preprocessing.datasets import Dataset, DatasetError, build_dataset
from preprocessing.datasets.record import ArchivedDataset
from preprocessing.extraction.extract import FORMAT, ShardSpec, archive_specs, shard_specs
from preprocessing.extraction.file_hashes import FileHashes
from preprocessing.extraction.identity import SplitSummary, image_stamps, records_digest, summarize
from preprocessing.shards.index import shard_path

NAME = "extract"
_PATIENCE = 3.0  # seconds


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:  # noqa: ARG001 (the first stage has none)
    """Find the shards that are there; `outputs` maps each split to its directory of shards.

    Raises DatasetError if the data set is not as configured, and ConfigError if the extractor cannot be built.
    """
    splits = splits_of(config)
    archives = sum(len(split.summary.archives) for split in splits)
    shards = {split.name: split.shard_set for split in splits}
    images, captions = sum(each.images for each in shards.values()), sum(each.captions for each in shards.values())
    to_make = f"{archives:,} archives" if archives else f"{images:,} images, {captions:,} captions"
    return shard_plan(NAME, config.work_dir, shards, lambda: in_words(*totals(splits)), to_make)


@dataclass(frozen=True)
class Split:
    """A split of the data set and its shards."""

    name: str
    dataset: Dataset
    summary: SplitSummary
    directory: StageDir
    shards: tuple[Path, ...]
    shard_size: int
    settings: Mapping[str, Any]
    max_skipped: float

    @property
    def shard_set(self) -> ShardSet:
        """Its shards; the numbers of images and captions are 0 until the archives of a split have been read."""
        counts, revision = self.manifest.get("counts", {}), self.manifest.get("revision", 0)
        images = self.summary.images or counts.get("records", 0)
        captions = self.summary.captions or counts.get("captions", 0)
        # Images that had failed have been added since: the shards are not those that the directory began with.
        identity = fingerprint([self.directory.fingerprint, revision]) if revision else self.directory.fingerprint
        return ShardSet(self.directory, self.shards, images, captions, identity)

    @property
    def version(self) -> Version:
        """Identity of each shard."""
        contents = {
            path.name: fingerprint({**self.settings, "records": digest})
            for path, digest in zip(self.shards, self.summary.shards, strict=True)
        }
        return Version(fingerprint(self.settings), contents)

    @property
    def manifest(self) -> dict[str, Any]:
        """Its manifest; empty if the split has never been complete."""
        return self.directory.read_manifest() if self.directory.is_complete() else {}

    def missing(self) -> set[Path]:
        """Return the shards that are not complete, neither here nor on the storage."""
        return set(missing_shards(self.directory, self.shards))

    def specs(self, shards: Collection[Path]) -> Iterator[ShardSpec]:
        """Yield the contents of shards to make, one at a time; actors read the records of archives.

        Raises DatasetError if a data set that is not in archives has other records than when the run began, but for
        those appended since.
        """
        directory = self.directory.create()
        made_of, root = self.directory.fingerprint, self.dataset.root
        if self.summary.archives:
            specs = archive_specs(self.summary.archives, directory, made_of, root)
            yield from (spec for spec in specs if spec.path in shards)
        else:
            records = islice(self.dataset.records(self.name), self.summary.images)
            specs = shard_specs(records, directory, self.shard_size, made_of, root)
            yield from self._unchanged(shards, (spec for spec in specs if spec.path in shards))

    def _unchanged(self, shards: Collection[Path], specs: Iterator[ShardSpec]) -> Iterator[ShardSpec]:
        for path, digest in zip(self.shards, self.summary.records, strict=True):
            if path not in shards:
                continue
            spec = next(specs, None)
            if spec is None or records_digest(spec.records, spec.root) != digest:
                raise DatasetError(
                    f"the records of {self.name} are others than when this run began: start it again once nothing "
                    "changes them any more; the shards that still fit are kept"
                )
            yield spec


def in_words(counts: Mapping[str, int], skipped: Iterable[Mapping[str, str]]) -> str:
    """Return one line for the final table."""
    return (
        f"{counts['images']:,} images, {counts['captions']:,} captions, {counts['bytes'] / 1e6:,.0f} MB; "
        f"skipped: {by_reason(skipped)}"
    )


def totals(splits: Iterable[Split]) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return the counts of several splits together, and all skipped items, by their manifests."""
    counts: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    for split in splits:
        manifest = split.directory.read_manifest()
        counts.update(manifest["counts"])
        skipped.extend({"split": split.name, **item} for item in manifest["skipped"])
    return {**counts, "skipped": len(skipped)}, skipped


def by_reason(skipped: Iterable[Mapping[str, str]]) -> str:
    """Count skipped items by their reasons, in a line."""
    reasons = Counter(item["reason"] for item in skipped)
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()) or "nothing"


def splits_of(config: PipelineConfig) -> list[Split]:
    """Return the splits to extract, each with the fingerprint of its records, the extractor and the settings."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    features = config.features
    # Each archive of a data set in archives becomes a shard.
    shard_size = 0 if isinstance(dataset, ArchivedDataset) else features.shard_size
    settings = {
        "format": FORMAT,
        "extractor": extractor_identity(features, config.mirror),
        # Which images share a batch can change the last bit of their features.
        "batch_size": features.batch_size,
        **features.limits,
        "shard_size": shard_size,
    }
    splits = []
    described = json.dumps({"format": config.dataset.format, **config.dataset.options()})
    names = tuple(dict.fromkeys((config.dataset.train_split, config.dataset.eval_split)))
    summaries = _summary(described, names, shard_size, config.work_dir, config.mirror.is_read_only)
    for name, summary in summaries.items():
        identity = fingerprint({**settings, "records": summary.digest})
        directory = StageDir(config.work_dir, f"{NAME}/{name}", identity, config.mirror)
        shards = tuple(shard_path(directory.path, number) for number in range(len(summary.shards)))
        splits.append(Split(name, dataset, summary, directory, shards, shard_size, settings, features.max_skipped))
    return splits


@contextmanager
def kept_hashes(work_dir: Path, is_read_only: bool) -> Iterator[FileHashes]:
    """Open the hashes of local files that a work folder keeps; a bar counts the files read, if that takes seconds."""
    with progress_bar("read new files", None, "files", delay=_PATIENCE) as bar:
        yield FileHashes(work_dir / "file_hashes.sqlite", is_read_only, bar.update)


@lru_cache(maxsize=8)
def _summary(
    dataset: str, splits: tuple[str, ...], shard_size: int, work_dir: Path, is_dry_run: bool
) -> dict[str, SplitSummary]:
    """Count the records of splits, once in a process: all stages of a run see the data as it was at the start."""
    built = build_dataset(**json.loads(dataset))
    with kept_hashes(work_dir, is_dry_run) as hashes:
        stamps = image_stamps(built, hashes)
        return {split: summarize(built, split, shard_size, stamps) for split in splits}


def _check_cluster(config: PipelineConfig) -> None:
    from pipelines.training.capacity import require_room_for_actor

    require_room_for_actor("features", config.features.cpus_per_actor, config.features.gpus_per_actor)


EXTRACT = Stage(NAME, plan, "pipelines.stages.extract.run", check_cluster=_check_cluster)
