"""Shared parts of the stages that make shards: complete shards, progress, and the splits as inputs of a run."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pipelines.config.datasets import Dataset
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import ShardSet, StageDir, StagePlan, fingerprint, manifest_in
from pipelines.tracking import LoggedData, Tracker
from preprocessing.datasets import build_dataset
from preprocessing.shards import ShardError, verify_shard

# Of a digest, as many as MLflow takes.
_DIGEST_CHARACTERS = 36


class ShardedSplit(Protocol):
    """A split whose shards stand in a directory of its own."""

    @property
    def name(self) -> str:
        """Name of the split."""

    @property
    def directory(self) -> StageDir:
        """Return the folder of its shards."""

    @property
    def fingerprint(self) -> str:
        """Identity of what they contain."""

    @property
    def shards(self) -> tuple[Path, ...]:
        """All its shards, there or not."""

    @property
    def images(self) -> int:
        """Number of images."""

    @property
    def captions(self) -> int:
        """Number of captions."""

    def missing(self) -> Collection[Path]:
        """Return the shards that are not complete, neither here nor on the storage."""


def shard_plan(
    name: str, root: Path, splits: Sequence[ShardedSplit], made: Callable[[], str], to_make: str
) -> StagePlan:
    """Return the plan of a stage that makes shards; `outputs` maps each split to its directory of shards.

    `made` summarises the output in a line, and is called where the stage is complete; `to_make` is a line about the
    work.
    """
    total = sum(len(split.shards) for split in splits)
    done = total - sum(len(split.missing()) for split in splits)
    complete = done == total and all(_has_manifest(split.directory) for split in splits)
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
        shards={
            split.name: ShardSet(split.directory, split.shards, split.images, split.captions, split.fingerprint)
            for split in splits
        },
    )


def _has_manifest(directory: StageDir) -> bool:
    """Return whether a split has its manifest; one of an earlier version, without digests, is to be written again."""
    return directory.is_complete() and "digests" in directory.read_manifest()


def is_complete(shard: Path, expected: str) -> bool:
    """Return whether a shard is as its sidecar describes it, and of the inputs with this fingerprint."""
    try:
        return verify_shard(shard, deep=False).fingerprint == expected
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


def uses_of(dataset: Dataset) -> dict[str, str]:
    """Return the use of each split: both may be the same one, to see whether a model can memorise it."""
    return {dataset.eval_split: "validation", dataset.train_split: "training"}


def logged_data(name: str, split: str, extracted: StagePlan) -> LoggedData:
    """Return the name and digest by which MLflow knows an extracted split of the data `name`."""
    return f"{name} {split}", manifest_in(extracted.outputs[split])["fingerprint"][:_DIGEST_CHARACTERS]


def log_splits(
    name: str, dataset: Dataset, feature: str, extracted: StagePlan, contexts: Mapping[str, str], tracker: Tracker
) -> None:
    """Log extracted splits as the data sets of a run.

    `contexts` says what each is used for: "training", "validation", "evaluation".
    """
    root = build_dataset(dataset.format, **dataset.options()).root
    for split, context in contexts.items():
        manifest = manifest_in(extracted.outputs[split])
        tracker.log_dataset(
            logged_data(name, split, extracted),
            kind=dataset.format,
            source={"images": root, "split": split, "features": feature},
            profile={items: manifest["counts"][items] for items in ("images", "captions")},
            context=context,
        )
