"""Shared parts of the stages that make shards: complete shards, progress, and the splits as inputs of a run."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pipelines.config.datasets import Dataset
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import ShardSet, StageDir, StagePlan, fingerprint, manifest_in
from pipelines.tracking import LoggedData, Tracker
from preprocessing.datasets import build_dataset
from preprocessing.shards import ShardError, verify_shard
from preprocessing.storage.mirror import sidecar_path

# Of a digest, as many as MLflow takes.
_DIGEST_CHARACTERS = 36


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
