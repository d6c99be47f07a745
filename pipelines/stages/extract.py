"""Stage 1, extract: every image of the training and evaluation splits through the extractor, into feature shards.

Each split has its own directory, `<work_dir>/extract/<split>/<fingerprint>/`: evaluating on another split never repeats
the work on the training split. A split that has grown has a new directory, with the shards of the old one as far as
they hold the same records.

python pipelines/extract.py --config pipelines/config/data/flickr8k.yaml

--verify reads all shards first and makes the broken ones anew; --retry-failed makes those anew that lack images.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.runtime.stage import StageDir, StageError, StagePlan, StageReport, fingerprint, unwritten
from pipelines.stages.extractor_identity import extractor_bytes, extractor_identity, extractor_options
from pipelines.stages.shard_reuse import Version, take_over
from pipelines.stages.shard_work import follow, is_whole, shard_plan
from preprocessing import extraction
from preprocessing.datasets import Dataset, build_dataset
from preprocessing.shards import read_index
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import sidecar_path

if TYPE_CHECKING:
    from pipelines.tracking import Tracker

NAME = "extract"


def plan(config: PipelineConfig) -> StagePlan:
    """Look at which shards are there; `outputs` maps each split to its directory of shards.

    Raises:
        DatasetError: the data set is not as configured.
        ConfigError: the extractor cannot be built, or a shard is to be smaller than an image's features.
    """
    splits = splits_of(config)
    images = sum(split.summary.images for split in splits)
    captions = sum(split.summary.captions for split in splits)
    to_make = f"{images:,} images, {captions:,} captions"
    return shard_plan(NAME, config.work_dir, splits, lambda: _totals(splits).summary(), to_make)


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Make the shards that are missing on a pool of Ray actors, then write each split's manifest.

    Raises:
        StageError: no image of a split was usable, or a shard has cost several actors their lives.
        ClusterError: Ray cannot be reached.
    """
    splits = splits_of(config)
    tracker.log_params({"features": config.features.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.directory.fingerprint for split in splits})
    taken_over = [take_over(split, split.version) for split in splits]
    if any(split.missing() for split in splits):
        _make_shards(config, splits, tracker)
    for split, taken in zip(splits, taken_over, strict=True):
        _write_manifest(split, taken)
    totals = _totals(splits)
    tracker.log_metrics({f"extract/{name}": float(value) for name, value in totals.counts.items()})
    tracker.log_dict(totals.set_aside, "set_aside.json")
    return StageReport(NAME, config.work_dir / NAME, totals.summary())


@dataclass(frozen=True)
class Split:
    """A split on its way into shards."""

    name: str
    dataset: Dataset
    summary: extraction.SplitSummary
    directory: StageDir
    shards: tuple[Path, ...]
    shard_size: int
    settings: Mapping[str, Any]

    @property
    def version(self) -> Version:
        """What decides each shard besides its number."""
        contents = {
            path.name: fingerprint({**self.settings, "records": digest})
            for path, digest in zip(self.shards, self.summary.shards, strict=True)
        }
        return Version(fingerprint(self.settings), contents)

    @property
    def fingerprint(self) -> str:
        """Identity of what is in the shards: that of the directory, until images that failed have come to them."""
        return fingerprint([self.directory.fingerprint, self.revision]) if self.revision else self.directory.fingerprint

    @property
    def revision(self) -> int:
        """How often shards were made anew with other images set aside than before."""
        return int(self._manifest().get("revision", 0))

    @property
    def set_aside(self) -> list[dict[str, str]] | None:
        """What the manifest says was set aside; None where the split has never been complete."""
        return self._manifest().get("set_aside")

    def _manifest(self) -> dict[str, Any]:
        return self.directory.read_manifest() if self.directory.is_complete() else {}

    def missing(self) -> set[Path]:
        """Shards that are not there as a whole, here or on the storage."""
        stored = self.directory.stored()
        return {
            path
            for path in self.shards
            if not (is_whole(path, self.directory.fingerprint) or {path.name, sidecar_path(path).name} <= stored)
        }

    def missing_specs(self) -> Iterator[extraction.ShardSpec]:
        """What the missing shards consist of; reads the records of the split once more, a shard's at a time."""
        missing, directory = self.missing(), self.directory.create()
        records, root = self.dataset.records(self.name), self.dataset.root
        specs = extraction.shard_specs(records, directory, self.shard_size, self.directory.fingerprint, root)
        yield from (spec for spec in specs if spec.path in missing)


class _Extraction:
    """The actor: holds the extractor and makes one shard at a time."""

    def __init__(
        self, name: str, options: dict[str, Any], batch_size: int, threads: int, timeout: float, mirror: Mirror
    ) -> None:
        self._name, self._options = name, options
        self._batch_size, self._threads, self._timeout = batch_size, threads, timeout
        self._mirror = mirror

    def prepare(self) -> None:
        """Load the extractor, once for all shards."""
        import torch

        from preprocessing.features import build_extractor

        torch.set_num_threads(self._threads)
        self._extractor = build_extractor(self._name, **self._options)

    def work(self, spec: extraction.ShardSpec) -> int:
        """Make a shard; return the number of records it covers."""
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        extraction.extract_shard(spec, self._extractor, self._batch_size, self._threads, self._timeout)
        # The sidecar last: on the storage, too, it says that the shard is whole.
        self._mirror.push(spec.path, sidecar_path(spec.path))
        self._mirror.make_room()
        return len(spec.records)


def _make_shards(config: PipelineConfig, splits: list[Split], tracker: Tracker) -> None:
    from pipelines.runtime import cluster

    cluster.connect(config)
    import ray

    from pipelines.runtime.actor_pool import map_unordered
    from preprocessing.features import ExtractorError

    features = config.features
    actor = ray.remote(_Extraction).options(
        num_cpus=features.cpus_per_actor,
        num_gpus=features.gpus_per_actor,
        runtime_env={"env_vars": cluster.KEEP_MEMORY},
    )
    threads = max(1, int(features.cpus_per_actor))
    sizes = (features.batch_size, threads, features.image_timeout)
    arguments = (features.extractor, extractor_options(config), *sizes, config.mirror)
    missing = sum(len(split.missing()) for split in splits)
    specs = chain.from_iterable(split.missing_specs() for split in splits)
    done = map_unordered(
        start=lambda: actor.remote(*arguments),
        actors=min(features.actors, missing),
        items=specs,
        describe=lambda spec: f"shard {spec.path}",
    )
    try:
        follow(done, _images_to_do(splits), NAME, "images", tracker)
    except ExtractorError as error:
        raise StageError(f"{NAME}: {error}") from error
    except OSError as error:
        raise unwritten(NAME, config.work_dir, error) from error


def _images_to_do(splits: Iterable[Split]) -> int:
    images = 0
    for split in splits:
        missing = split.missing()
        sizes = [split.shard_size] * len(split.shards)
        sizes[-1] = split.summary.images - split.shard_size * (len(sizes) - 1)
        images += sum(size for path, size in zip(split.shards, sizes, strict=True) if path in missing)
    return images


def _write_manifest(split: Split, taken_over: int = 0) -> None:
    """Sum up the sidecars of a split and declare it complete.

    Args:
        split: with all its shards.
        taken_over: how many of them the last version of the split had already.

    Raises:
        StageError: nothing of the split was usable.
    """
    split.directory.pull(lambda name: name.endswith(".json"))
    indices = [read_index(path) for path in split.shards]
    set_aside = [item for index in indices for item in index.skipped]
    counts = {
        "records": split.summary.images,
        "images": sum(index.count for index in indices),
        "captions": sum(sum(index.caption_counts) for index in indices),
        "bytes": sum(index.bytes for index in indices),
        "shards": len(indices),
        "shards_taken_over": taken_over,
    }
    if not counts["images"]:
        raise StageError(f"{NAME}: no image of {split.name} was usable ({_by_reason(set_aside)}); check the data set")
    revision = split.revision + (split.set_aside not in (None, set_aside))
    split.directory.complete({"split": split.name, "counts": counts, "set_aside": set_aside, "revision": revision})


@dataclass(frozen=True)
class _Totals:
    """What is in the manifests of several splits together."""

    counts: Mapping[str, int]
    set_aside: list[dict[str, str]]

    def summary(self) -> str:
        """One line for the final table."""
        counts = self.counts
        return (
            f"{counts['images']:,} images, {counts['captions']:,} captions, {counts['bytes'] / 1e6:,.0f} MB; "
            f"set aside: {_by_reason(self.set_aside)}"
        )


def _totals(splits: Iterable[Split]) -> _Totals:
    counts: Counter[str] = Counter()
    set_aside: list[dict[str, str]] = []
    for split in splits:
        manifest = split.directory.read_manifest()
        counts.update(manifest["counts"])
        set_aside.extend({"split": split.name, **item} for item in manifest["set_aside"])
    return _Totals({**counts, "set_aside": len(set_aside)}, set_aside)


def _by_reason(set_aside: Iterable[Mapping[str, str]]) -> str:
    reasons = Counter(item["reason"] for item in set_aside)
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()) or "nothing"


def splits_of(config: PipelineConfig) -> list[Split]:
    """Return the splits to extract, each with the fingerprint of its records, the extractor and the settings."""
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    features = config.features
    settings = {
        "format": extraction.FORMAT,
        "extractor": extractor_identity(config),
        # Which images share a batch can change the last bit of their features.
        "batch_size": features.batch_size,
        "shard_size": (shard_size := _shard_size(config, dataset)),
    }
    splits = []
    for name in dict.fromkeys((config.dataset.train_split, config.dataset.eval_split)):
        summary = _summary(json.dumps({"format": config.dataset.format, **config.dataset.options()}), name, shard_size)
        identity = fingerprint({**settings, "records": summary.digest})
        directory = StageDir(config.work_dir, f"{NAME}/{name}", identity, config.mirror)
        shards = tuple(extraction.shard_paths(directory.path, summary.images, shard_size))
        splits.append(Split(name, dataset, summary, directory, shards, shard_size, settings))
    return splits


def _shard_size(config: PipelineConfig, dataset: Dataset) -> int:
    """Images in a shard: as many as were asked for, or as fit the bytes that it may have."""
    features = config.features
    if features.shard_mb is None:
        return features.shard_size
    fit = int(features.shard_mb * 1e6 / extractor_bytes(config, dataset))
    if not fit:
        raise ConfigError(f"features.shard_mb: an image's features are larger than {features.shard_mb:g} MB; raise it")
    return min(features.shard_size, fit)


@lru_cache(maxsize=8)
def _summary(dataset: str, split: str, shard_size: int) -> extraction.SplitSummary:
    """Go through a split's records, once in a process: all stages of a run mean the data as it was at the start."""
    return extraction.summarize(build_dataset(**json.loads(dataset)), split, shard_size)
